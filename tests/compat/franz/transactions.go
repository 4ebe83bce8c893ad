package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type transactional struct {
	Producer        string
	TransactionalID string
	TimeoutMs       int64
	Values          []string
	Committed       bool
	Source          string
	Target          string
}

var producers = map[string]*kgo.Client{}

func transactionalOptions(id string, timeout time.Duration) []kgo.Opt {
	return []kgo.Opt{
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
}

func open(within context.Context, asked arguments) (any, error) {
	timeout := time.Duration(asked.TimeoutMs) * time.Millisecond
	made, err := client(transactionalOptions(asked.TransactionalID, timeout)...)
	if err != nil {
		return nil, err
	}
	if _, _, err := made.ProducerID(within); err != nil {
		made.Close()
		return nil, err
	}
	producers[asked.Producer] = made
	return nil, nil
}

func begin(within context.Context, asked arguments) (any, error) {
	return nil, producers[asked.Producer].BeginTransaction()
}

func send(within context.Context, asked arguments) (any, error) {
	var records []*kgo.Record
	for _, value := range asked.Values {
		records = append(records, &kgo.Record{
			Topic: asked.Topic, Partition: asked.Partition, Value: []byte(value),
		})
	}
	return nil, producers[asked.Producer].ProduceSync(within, records...).FirstErr()
}

func commit(within context.Context, asked arguments) (any, error) {
	return nil, producers[asked.Producer].EndTransaction(within, kgo.TryCommit)
}

func abort(within context.Context, asked arguments) (any, error) {
	return nil, producers[asked.Producer].EndTransaction(within, kgo.TryAbort)
}

func closeProducer(within context.Context, asked arguments) (any, error) {
	producers[asked.Producer].Close()
	delete(producers, asked.Producer)
	return nil, nil
}

func readAt(within context.Context, asked arguments) (any, error) {
	level := kgo.ReadUncommitted()
	if asked.Committed {
		level = kgo.ReadCommitted()
	}
	start := kgo.NewOffset().AtStart()
	reader, err := client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: {asked.Partition: start}}),
		kgo.FetchIsolationLevel(level),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	found, err := read(within, reader, asked.Count)
	if err != nil {
		return nil, err
	}
	pairs := [][2]any{}
	for _, one := range found {
		pairs = append(pairs, [2]any{one.Offset, string(one.Value)})
	}
	return pairs, nil
}

func copyAll(within context.Context, asked arguments) (any, error) {
	session, err := kgo.NewGroupTransactSession(append(
		transactionalOptions("copy-"+asked.Group, time.Minute),
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	for left := asked.Count; left > 0; {
		fetches := session.PollFetches(within)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d records did not come: %w", left, err)
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		var records []*kgo.Record
		for _, one := range fetches.Records() {
			records = append(records, &kgo.Record{
				Topic: asked.Target, Partition: one.Partition, Value: one.Value,
			})
		}
		if err := session.ProduceSync(within, records...).FirstErr(); err != nil {
			return nil, err
		}
		committed, err := session.End(within, kgo.TryCommit)
		if err != nil {
			return nil, err
		}
		if !committed {
			return nil, errors.New("a transaction was aborted")
		}
		left -= len(records)
	}
	return nil, nil
}
