package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"time"
)

const ahead = 1_000

type beanstalkdPeer struct {
	connection net.Conn
	replies    *bufio.Reader
}

func connectBeanstalkd(address string) (peer, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &beanstalkdPeer{connection, bufio.NewReaderSize(connection, 1<<20)}, nil
}

// Delays are whole seconds: a message is due at the first whole second, from now, that is not before
// its time, and says so.
func (one *beanstalkdPeer) schedule(dues []int64, size int) error {
	writer := bufio.NewWriterSize(one.connection, 1<<20)
	for start := 0; start < len(dues); start += ahead {
		part := dues[start:min(start+ahead, len(dues))]
		for _, due := range part {
			now := time.Now().UnixMilli()
			seconds := (due - now + 999) / 1000
			fmt.Fprintf(writer, "put 0 %d 3600 %d\r\n%s\r\n", seconds, size, payload(now+seconds*1000, size))
		}
		if err := writer.Flush(); err != nil {
			return err
		}
		for range part {
			line, err := one.replies.ReadString('\n')
			if err != nil {
				return err
			}
			var id uint64
			if _, err := fmt.Sscanf(line, "INSERTED %d", &id); err != nil {
				return fmt.Errorf("put: %s", line)
			}
		}
	}
	return nil
}

func (one *beanstalkdPeer) receive(count int, each func([]byte)) error {
	if _, err := io.WriteString(one.connection, "reserve\r\n"); err != nil {
		return err
	}
	for ; count > 0; count-- {
		line, err := one.replies.ReadString('\n')
		if err != nil {
			return err
		}
		var id uint64
		var size int
		if _, err := fmt.Sscanf(line, "RESERVED %d %d", &id, &size); err != nil {
			return fmt.Errorf("reserve: %s", line)
		}
		body := make([]byte, size+2)
		if _, err := io.ReadFull(one.replies, body); err != nil {
			return err
		}
		each(body[:size])
		next := "reserve\r\n"
		if count == 1 {
			next = ""
		}
		if _, err := fmt.Fprintf(one.connection, "delete %d\r\n%s", id, next); err != nil {
			return err
		}
		if _, err := one.replies.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}
