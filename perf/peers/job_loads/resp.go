package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A resp is a connection that speaks the protocol of Redis and Disque, RESP 2.
type resp struct {
	connection net.Conn
	replies    *bufio.Reader
	out        []byte
}

func connectRESP(address string, deadline time.Time) (*resp, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &resp{connection, bufio.NewReaderSize(connection, 64<<10), nil}, connection.SetDeadline(deadline)
}

func (one *resp) close() error { return one.connection.Close() }

// Command puts a command behind those that are to be sent.
func (one *resp) command(words ...string) {
	one.out = append(one.out, '*')
	one.out = strconv.AppendInt(one.out, int64(len(words)), 10)
	one.out = append(one.out, "\r\n"...)
	for _, word := range words {
		one.out = append(one.out, '$')
		one.out = strconv.AppendInt(one.out, int64(len(word)), 10)
		one.out = append(one.out, "\r\n"...)
		one.out = append(one.out, word...)
		one.out = append(one.out, "\r\n"...)
	}
}

func (one *resp) send() error {
	_, err := one.connection.Write(one.out)
	one.out = one.out[:0]
	return err
}

// Ask sends a command and reads its reply.
func (one *resp) ask(words ...string) (any, error) {
	one.command(words...)
	if err := one.send(); err != nil {
		return nil, err
	}
	return one.reply()
}

// Reply is a string, an int64, a slice of replies, or nil.
func (one *resp) reply() (any, error) {
	line, err := one.replies.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 4 && line[0] != '+' {
		return nil, fmt.Errorf("%q is no reply", line)
	}
	kind, text := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+':
		return text, nil
	case '-':
		return nil, errors.New(text)
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, err
	}
	switch {
	case kind == ':':
		return number, nil
	case number < 0:
		return nil, nil
	case kind == '$':
		value := make([]byte, number+2)
		_, err := io.ReadFull(one.replies, value)
		return string(value[:number]), err
	case kind == '*':
		values := make([]any, number)
		for i := range values {
			if values[i], err = one.reply(); err != nil {
				return nil, err
			}
		}
		return values, nil
	}
	return nil, fmt.Errorf("%q is no reply", kind)
}

// A disque is a connection to Disque, or to Qbus's listener for its clients.
type disque struct {
	*resp
	queue string
}

// DisqueNodes are the addresses of all nodes that one of them knows.
func disqueNodes(address string) ([]string, error) {
	connection, err := connectRESP(address, time.Now().Add(grace))
	if err != nil {
		return nil, err
	}
	defer connection.close()
	reply, err := connection.ask("HELLO")
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, node := range reply.([]any)[2:] {
		named := fmt.Sprint(node.([]any)[1])
		if named == "" { // a node that has met no other does not know its own
			named = host
		}
		found = append(found, net.JoinHostPort(named, fmt.Sprint(node.([]any)[2])))
	}
	return found, nil
}

func connectDisque(address, queue string, deadline time.Time) (worker, error) {
	connection, err := connectRESP(address, deadline)
	return &disque{connection, queue}, err
}

func (one *disque) add(bodies ...[]byte) error {
	for _, body := range bodies {
		one.command("ADDJOB", one.queue, string(body), "10000")
	}
	if err := one.send(); err != nil {
		return err
	}
	for range bodies {
		if _, err := one.reply(); err != nil {
			return err
		}
	}
	return nil
}

func (one *disque) take(most int) ([]job, error) {
	reply, err := one.ask("GETJOB", "TIMEOUT", milliseconds(nap), "COUNT", strconv.Itoa(most), "FROM", one.queue)
	if err != nil || reply == nil {
		return nil, err
	}
	var jobs []job
	for _, taken := range reply.([]any) {
		values := taken.([]any)
		jobs = append(jobs, job{values[1].(string), []byte(values[2].(string))})
	}
	return jobs, nil
}

func (one *disque) acknowledge(jobs []job) error {
	reply, err := one.ask(append([]string{"ACKJOB"}, ids(jobs)...)...)
	return counted("ACKJOB", reply, err, jobs)
}

// A redis is a consumer of a Redis stream: what it is given is pending until it is acknowledged, and
// then deleted.
type redis struct {
	*resp
	queue, name string
}

const group = "workers"

var consumers int

func connectRedis(address, queue string, deadline time.Time) (worker, error) {
	connection, err := connectRESP(address, deadline)
	if err != nil {
		return nil, err
	}
	consumers++
	_, err = connection.ask("XGROUP", "CREATE", queue, group, "0", "MKSTREAM")
	if err != nil && strings.HasPrefix(err.Error(), "BUSYGROUP") { // another one made it
		err = nil
	}
	return &redis{connection, queue, strconv.Itoa(consumers)}, err
}

func (one *redis) add(bodies ...[]byte) error {
	for _, body := range bodies {
		one.command("XADD", one.queue, "*", "body", string(body))
	}
	if err := one.send(); err != nil {
		return err
	}
	for range bodies {
		if _, err := one.reply(); err != nil {
			return err
		}
	}
	return nil
}

func (one *redis) take(most int) ([]job, error) {
	reply, err := one.ask("XREADGROUP", "GROUP", group, one.name, "COUNT", strconv.Itoa(most),
		"BLOCK", milliseconds(nap), "STREAMS", one.queue, ">")
	if err != nil || reply == nil {
		return nil, err
	}
	var jobs []job
	for _, taken := range reply.([]any)[0].([]any)[1].([]any) {
		entry := taken.([]any)
		jobs = append(jobs, job{entry[0].(string), []byte(entry[1].([]any)[1].(string))})
	}
	return jobs, nil
}

func (one *redis) acknowledge(jobs []job) error {
	one.command(append([]string{"XACK", one.queue, group}, ids(jobs)...)...)
	one.command(append([]string{"XDEL", one.queue}, ids(jobs)...)...)
	if err := one.send(); err != nil {
		return err
	}
	for _, what := range []string{"XACK", "XDEL"} {
		reply, err := one.reply()
		if err := counted(what, reply, err, jobs); err != nil {
			return err
		}
	}
	return nil
}

func ids(jobs []job) []string {
	found := make([]string, len(jobs))
	for i, job := range jobs {
		found[i] = job.id
	}
	return found
}

// Counted is no error if a reply tells that a command was done for every job.
func counted(what string, reply any, err error, jobs []job) error {
	if err == nil && reply != int64(len(jobs)) {
		return fmt.Errorf("%s of %d jobs: %v", what, len(jobs), reply)
	}
	return err
}

func milliseconds(length time.Duration) string {
	return strconv.FormatInt(length.Milliseconds(), 10)
}
