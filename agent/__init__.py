"""The log-shipping agent."""

assert __name__ == "qbus.agent", "import qbus.agent: this folder is a part of the qbus package"
