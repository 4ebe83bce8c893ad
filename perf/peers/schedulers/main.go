// Schedulers runs a NATS server, loads it or a beanstalkd with messages that are due later, and sends
// such to a Qbus.
//
//	schedulers serve PORT DIRECTORY
//	schedulers nats|beanstalkd HOST:PORT COUNT LEAD_MS SPREAD_MS SIZE WAIT
//	schedulers send HOST:PORT TOPIC PARTITIONS COUNT START_MS SPREAD_MS FAR_EVERY FAR_MS SIZE
//
// A load sends COUNT messages of SIZE bytes, which begin with the time at which they are due: at
// random within SPREAD_MS, which begin LEAD_MS from now. It prints how long that took; then, unless
// WAIT is 0, it receives them all and prints how late they were. One JSON object a line.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"syscall"
	"time"
)

// A peer takes messages that are due later, and gives them back.
type peer interface {
	schedule(dues []int64, size int) error
	receive(count int, each func(payload []byte)) error
}

func main() {
	if len(os.Args) < 4 {
		fail(fmt.Errorf("usage: schedulers serve|nats|beanstalkd|send ..."))
	}
	if os.Args[1] == "serve" {
		fail(serve(number(2), os.Args[3]))
		stopped := make(chan os.Signal, 1)
		signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
		<-stopped
		return
	}
	if os.Args[1] == "send" {
		fail(send(os.Args[2], os.Args[3], number(4), number(5), int64(number(6)), int64(number(7)), number(8), int64(number(9)), number(10)))
		return
	}
	connect := map[string]func(string) (peer, error){"nats": connectNATS, "beanstalkd": connectBeanstalkd}
	make, known := connect[os.Args[1]]
	if !known {
		fail(fmt.Errorf("%s is no peer", os.Args[1]))
	}
	one, err := make(os.Args[2])
	fail(err)
	load(one, number(3), int64(number(4)), int64(number(5)), number(6), number(7) != 0)
}

func load(one peer, count int, leadMS, spreadMS int64, size int, wait bool) {
	random := rand.New(rand.NewSource(1))
	start := time.Now().UnixMilli() + leadMS
	dues := make([]int64, count)
	for i := range dues {
		dues[i] = start + random.Int63n(spreadMS)
	}
	began := time.Now()
	fail(one.schedule(dues, size))
	report(map[string]any{"seconds": time.Since(began).Seconds(), "spare_ms": start - time.Now().UnixMilli()})
	if !wait {
		return
	}
	late := make([]float64, 0, count)
	early := 0
	fail(one.receive(count, func(payload []byte) {
		due, err := strconv.ParseInt(string(payload[:13]), 10, 64)
		fail(err)
		by := float64(time.Now().UnixMicro())/1000 - float64(due)
		if by < 0 {
			early++
		}
		late = append(late, by)
	}))
	sort.Float64s(late)
	report(map[string]any{
		"received": len(late), "early": early,
		"p50": late[len(late)/2], "p99": late[len(late)*99/100],
	})
}

func report(values map[string]any) {
	text, err := json.Marshal(values)
	fail(err)
	fmt.Println(string(text))
}

func number(at int) int {
	value, err := strconv.Atoi(os.Args[at])
	fail(err)
	return value
}

func payload(due int64, size int) []byte {
	text := make([]byte, size)
	for i := range text {
		text[i] = 'x'
	}
	copy(text, strconv.FormatInt(due, 10))
	return text
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
