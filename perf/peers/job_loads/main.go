// Jobloads loads a server of jobs, as told on standard input, a command a line; it answers each with
// one JSON object a line.
//
//	jobloads disque|beanstalkd|redis HOST:PORT SIZE
//
//	queue NAME              what follows is about this queue
//	open WORKERS [MOST]     connect so many that add jobs, and as many that take MOST (1) at a time
//	add SECONDS             each adds one job after another: how many in how long
//	work COUNT SECONDS      each takes a job and acknowledges it, until COUNT are done
//	steady RATE SECONDS     all add RATE jobs a second and take them: milliseconds from add to get
//	fill COUNT SECONDS      one adds COUNT jobs without waiting for each answer
//	close                   close the connections
//
// A job has SIZE bytes. The time from add to get begins when the job should have been added.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	grace = 10 * time.Second // beyond the seconds that a command is given
	nap   = time.Second      // how long one that takes jobs waits for one
	chunk = 500              // jobs added without waiting for each answer
)

// A worker is one connection to a server.
type worker interface {
	// Add jobs to the queue; they are as safe as the server makes them when it returns.
	add(bodies ...[]byte) error
	// Take so many jobs at most; none if there is none for a while.
	take(most int) ([]job, error)
	acknowledge(jobs []job) error
	close() error
}

type job struct {
	id   string
	body []byte
}

var servers = map[string]func(address, queue string, deadline time.Time) (worker, error){
	"disque": connectDisque, "beanstalkd": connectBeanstalkd, "redis": connectRedis,
}

// Nodes are the addresses of a cluster's nodes, of which workers take one after the other.
var nodes = map[string]func(address string) ([]string, error){"disque": disqueNodes}

type load struct {
	connect           func(address, queue string, deadline time.Time) (worker, error)
	addresses         []string
	queue             string
	size, most        int
	adders, takers    []worker
	added, done       atomic.Int64 // jobs of the queue so far; the last one's number is how many were added
	sumAdded, sumDone atomic.Int64 // of the jobs' numbers
}

func main() {
	if len(os.Args) != 4 || servers[os.Args[1]] == nil {
		fail(errors.New("usage: jobloads disque|beanstalkd|redis HOST:PORT SIZE"))
	}
	size, err := strconv.Atoi(os.Args[3])
	fail(err)
	one := &load{connect: servers[os.Args[1]], addresses: []string{os.Args[2]}, size: size}
	if find := nodes[os.Args[1]]; find != nil {
		one.addresses, err = find(os.Args[2])
		fail(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		result, err := one.obey(strings.Fields(lines.Text()))
		fail(err)
		text, err := json.Marshal(result)
		fail(err)
		fmt.Println(string(text))
	}
}

func (one *load) obey(words []string) (map[string]float64, error) {
	numbers := make([]float64, 2)
	if words[0] != "queue" {
		for i, word := range words[1:] {
			var err error
			if numbers[i], err = strconv.ParseFloat(word, 64); err != nil {
				return nil, err
			}
		}
	}
	switch words[0] {
	case "queue":
		one.queue = words[1]
		one.added.Store(0)
		one.done.Store(0)
		one.sumAdded.Store(0)
		one.sumDone.Store(0)
		return map[string]float64{}, nil
	case "open":
		one.most = max(1, int(numbers[1]))
		return map[string]float64{}, one.open(int(numbers[0]))
	case "add":
		return one.addAll(seconds(numbers[0]))
	case "work":
		return one.work(int64(numbers[0]), seconds(numbers[1]))
	case "steady":
		return one.steady(numbers[0], seconds(numbers[1]))
	case "fill":
		return one.fill(int64(numbers[0]), seconds(numbers[1]))
	case "close":
		return map[string]float64{}, one.close()
	}
	return nil, fmt.Errorf("%s is no command", words[0])
}

func (one *load) open(workers int) error {
	deadline := time.Now().Add(10 * time.Minute) // of all that is done over these connections
	for i := range workers {
		for _, kind := range []*[]worker{&one.adders, &one.takers} {
			connected, err := one.connect(one.addresses[i%len(one.addresses)], one.queue, deadline)
			if err != nil {
				return err
			}
			*kind = append(*kind, connected)
		}
	}
	return nil
}

func (one *load) close() error {
	for _, worker := range slices.Concat(one.adders, one.takers) {
		if err := worker.close(); err != nil {
			return err
		}
	}
	one.adders, one.takers = nil, nil
	return nil
}

func (one *load) addAll(length time.Duration) (map[string]float64, error) {
	began := time.Now()
	before := one.added.Load()
	err := together(one.adders, func(_ int, adder worker) error {
		for time.Since(began) < length {
			if err := adder.add(one.next(0)); err != nil {
				return err
			}
		}
		return nil
	})
	return rate(one.added.Load()-before, time.Since(began)), err
}

func (one *load) work(count int64, length time.Duration) (map[string]float64, error) {
	began := time.Now()
	var done, finished atomic.Int64
	err := together(one.takers, func(_ int, taker worker) error {
		for done.Load() < count && time.Since(began) < length {
			jobs, err := taker.take(one.most)
			if err != nil {
				return err
			}
			if len(jobs) == 0 {
				continue
			}
			if err := taker.acknowledge(jobs); err != nil {
				return err
			}
			for _, job := range jobs {
				one.sumDone.Add(numberOf(job.body))
			}
			one.done.Add(int64(len(jobs)))
			done.Add(int64(len(jobs)))
			finished.Store(int64(time.Since(began)))
		}
		return nil
	})
	// Without what the others wait in vain once the last is done.
	result := rate(done.Load(), time.Duration(finished.Load()))
	if err == nil && one.done.Load() >= one.added.Load() && one.sumAdded.Load() != one.sumDone.Load() {
		err = errors.New("a job was lost, or came twice")
	}
	return result, err
}

func (one *load) steady(perSecond float64, length time.Duration) (map[string]float64, error) {
	first := one.added.Load()
	count := int64(perSecond * length.Seconds())
	start := time.Now().Add(100 * time.Millisecond)
	last := start.Add(length + grace)
	var received atomic.Int64
	late := make([][]float64, len(one.takers))
	var sides sync.WaitGroup
	var adding, taking error
	sides.Go(func() {
		adding = together(one.adders, func(place int, adder worker) error {
			for i := int64(place); i < count && time.Now().Before(last); i += int64(len(one.adders)) {
				due := start.Add(time.Duration(float64(i) / perSecond * 1e9))
				time.Sleep(time.Until(due))
				if err := adder.add(one.next(due.UnixNano())); err != nil {
					return err
				}
			}
			return nil
		})
	})
	sides.Go(func() {
		taking = together(one.takers, func(place int, taker worker) error {
			for received.Load() < count && time.Now().Before(last) {
				jobs, err := taker.take(one.most)
				if err != nil {
					return err
				}
				for _, job := range jobs {
					by := time.Now().UnixNano() - dueOf(job.body)
					late[place] = append(late[place], float64(by)/1e6)
				}
				if len(jobs) == 0 {
					continue
				}
				received.Add(int64(len(jobs)))
				if err := taker.acknowledge(jobs); err != nil {
					return err
				}
			}
			return nil
		})
	})
	sides.Wait()
	all := slices.Sorted(slices.Values(slices.Concat(late...)))
	if err := errors.Join(adding, taking); err != nil || len(all) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%d jobs came", len(all)))
	}
	return map[string]float64{
		"added": float64(one.added.Load() - first), "jobs": float64(len(all)),
		"p50_ms": all[len(all)/2], "p99_ms": all[len(all)*99/100],
		"p999_ms": all[len(all)*999/1000], "most_ms": all[len(all)-1],
	}, nil
}

func (one *load) fill(count int64, length time.Duration) (map[string]float64, error) {
	began := time.Now()
	var filled int64
	for filled < count && time.Since(began) < length {
		bodies := make([][]byte, min(chunk, count-filled))
		for i := range bodies {
			bodies[i] = one.next(0)
		}
		if err := one.adders[0].add(bodies...); err != nil {
			return nil, err
		}
		filled += int64(len(bodies))
	}
	return rate(filled, time.Since(began)), nil
}

// Next is the body of the next job: its number, when it is due, and filler.
func (one *load) next(due int64) []byte {
	number := one.added.Add(1)
	one.sumAdded.Add(number)
	body := make([]byte, 0, one.size)
	body = fmt.Appendf(body, "%012d %019d ", number, due)
	for len(body) < one.size {
		body = append(body, 'x')
	}
	return body
}

func numberOf(body []byte) int64 { return integer(body[:12]) }

func dueOf(body []byte) int64 { return integer(body[13:32]) }

func integer(digits []byte) (value int64) {
	for _, digit := range digits {
		value = value*10 + int64(digit-'0')
	}
	return value
}

// Together runs a task for each worker at once, and returns when all are done.
func together(workers []worker, task func(place int, one worker) error) error {
	var running sync.WaitGroup
	failures := make([]error, len(workers))
	for place, one := range workers {
		running.Go(func() { failures[place] = task(place, one) })
	}
	running.Wait()
	return errors.Join(failures...)
}

func rate(jobs int64, length time.Duration) map[string]float64 {
	return map[string]float64{"jobs": float64(jobs), "seconds": length.Seconds()}
}

func seconds(number float64) time.Duration { return time.Duration(number * 1e9) }

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
