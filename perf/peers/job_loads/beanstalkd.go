package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A beanstalkd is a connection that uses one tube and watches no other.
type beanstalkd struct {
	connection net.Conn
	replies    *bufio.Reader
	out        []byte
}

const runFor = 300 // seconds until a job that is not acknowledged is given to another

func connectBeanstalkd(address, queue string, deadline time.Time) (worker, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if err := connection.SetDeadline(deadline); err != nil {
		return nil, err
	}
	one := &beanstalkd{connection, bufio.NewReaderSize(connection, 64<<10), nil}
	for _, words := range []string{"use " + queue, "watch " + queue, "ignore default"} {
		if _, err := io.WriteString(connection, words+"\r\n"); err != nil {
			return nil, err
		}
		if line, err := one.line(); err != nil || line == "NOT_IGNORED" {
			return nil, fmt.Errorf("%s: %s, %v", words, line, err)
		}
	}
	return one, nil
}

func (one *beanstalkd) close() error { return one.connection.Close() }

func (one *beanstalkd) add(bodies ...[]byte) error {
	one.out = one.out[:0]
	for _, body := range bodies {
		one.out = fmt.Appendf(one.out, "put 0 0 %d %d\r\n%s\r\n", runFor, len(body), body)
	}
	if _, err := one.connection.Write(one.out); err != nil {
		return err
	}
	for range bodies {
		if line, err := one.line(); err != nil || !strings.HasPrefix(line, "INSERTED ") {
			return fmt.Errorf("put: %s, %v", line, err)
		}
	}
	return nil
}

// Take takes one job, whatever the most.
func (one *beanstalkd) take(int) ([]job, error) {
	one.out = fmt.Appendf(one.out[:0], "reserve-with-timeout %d\r\n", int(nap.Seconds()))
	if _, err := one.connection.Write(one.out); err != nil {
		return nil, err
	}
	line, err := one.line()
	if err != nil || line == "TIMED_OUT" {
		return nil, err
	}
	words := strings.Fields(line)
	if len(words) != 3 || words[0] != "RESERVED" {
		return nil, fmt.Errorf("reserve: %s", line)
	}
	size, err := strconv.Atoi(words[2])
	if err != nil {
		return nil, err
	}
	body := make([]byte, size+2)
	_, err = io.ReadFull(one.replies, body)
	return []job{{words[1], body[:size]}}, err
}

func (one *beanstalkd) acknowledge(jobs []job) error {
	for _, job := range jobs {
		if _, err := io.WriteString(one.connection, "delete "+job.id+"\r\n"); err != nil {
			return err
		}
		if line, err := one.line(); err != nil || line != "DELETED" {
			return fmt.Errorf("delete: %s, %v", line, err)
		}
	}
	return nil
}

func (one *beanstalkd) line() (string, error) {
	line, err := one.replies.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}
