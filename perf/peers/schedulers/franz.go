package main

import (
	"context"
	"fmt"
	"math/rand"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// send is franz-go as a sender for perf.delay_exact.
func send(bootstrap, topic string, partitions, count int, start, spreadMS int64, farEvery int, farMS int64, size int) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20*time.Millisecond),
		kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.MaxBufferedRecords(1_000_000),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	random := rand.New(rand.NewSource(1))
	var failure error
	var once sync.Once
	began := time.Now()
	for number := range count {
		due := start + random.Int63n(spreadMS)
		if number%farEvery == 0 {
			due += farMS
		}
		value := payload(due, size)
		copy(value[13:], fmt.Sprintf(" %09d ", number))
		client.Produce(context.Background(), &kgo.Record{
			Topic:     topic,
			Partition: int32(number % partitions),
			Value:     value,
			Headers:   []kgo.RecordHeader{{Key: "qbus-deliver-at", Value: []byte(strconv.FormatInt(due, 10))}},
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { failure = err })
			}
		})
	}
	if err := client.Flush(context.Background()); err != nil {
		return err
	}
	if failure != nil {
		return failure
	}
	report(map[string]any{"seconds": time.Since(began).Seconds(), "spare_ms": start - time.Now().UnixMilli()})
	return nil
}
