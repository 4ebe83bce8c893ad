"""Say how far every group is behind: ``lag_report.py BOOTSTRAP``."""

import sys

from qbus import Admin


def main(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        for listed in admin.list_groups():
            offsets = admin.group_offsets(listed.group)
            print(listed.group, listed.state, sum(offset.lag for offset in offsets))
            for offset in offsets:
                print(" ", offset.topic, offset.partition, offset.committed_offset, offset.lag)


if __name__ == "__main__":
    main(*sys.argv[1:])
