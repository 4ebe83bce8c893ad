// Franz carries out operations: a line {"operation", "arguments"} in, a line {"result"} or {"code",
// "message"} out. Started with the bootstrap address.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 30 * time.Second

type record struct {
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	Key       []byte       `json:"key"`
	Value     []byte       `json:"value"`
	Headers   [][2]*string `json:"headers"`
	Timestamp *int64       `json:"timestamp"`
}

type arguments struct {
	Topic       string
	Group       string
	Partition   int32
	Offset      int64
	Timestamp   int64
	Count       int
	Records     []record
	Compression string
	Acks        string
	Idempotent  bool
	transactional
}

type question struct {
	Operation string
	Arguments arguments
}

var (
	bootstrap  string
	operations = map[string]func(context.Context, arguments) (any, error){
		"produce":       produce,
		"consume":       consume,
		"consumeGroup":  consumeGroup,
		"offsetForTime": offsetForTime,
		"bounds":        bounds,
		"committed":     committed,
		"open":          open,
		"begin":         begin,
		"send":          send,
		"commit":        commit,
		"abort":         abort,
		"close":         closeProducer,
		"read":          readAt,
		"copy":          copyAll,
	}
	codecs = map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
)

func main() {
	bootstrap = os.Args[1]
	input := bufio.NewReader(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		output.Encode(answer(line))
	}
}

func answer(line []byte) map[string]any {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return map[string]any{"code": nil, "message": err.Error()}
	}
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	result, err := operations[asked.Operation](within, asked.Arguments)
	if err == nil {
		return map[string]any{"result": result}
	}
	var known *kerr.Error
	if errors.As(err, &known) {
		return map[string]any{"code": known.Code, "message": err.Error()}
	}
	return map[string]any{"code": nil, "message": err.Error()}
}

func client(options ...kgo.Opt) (*kgo.Client, error) {
	proven, err := security()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(append(options, proven...), kgo.SeedBrokers(bootstrap))...)
}

func produce(within context.Context, asked arguments) (any, error) {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[asked.Compression]),
		kgo.ProducerBatchMaxBytes(10_000_000),
		kgo.RequiredAcks(acks[asked.Acks]),
		kgo.AllowAutoTopicCreation(),
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	sender, err := client(options...)
	if err != nil {
		return nil, err
	}
	defer sender.Close()
	var records []*kgo.Record
	for _, one := range asked.Records {
		made := &kgo.Record{Topic: asked.Topic, Partition: asked.Partition, Key: one.Key, Value: one.Value}
		if one.Timestamp != nil {
			made.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		for _, header := range one.Headers {
			value, err := bytesOf(header[1])
			if err != nil {
				return nil, err
			}
			made.Headers = append(made.Headers, kgo.RecordHeader{Key: *header[0], Value: value})
		}
		records = append(records, made)
	}
	sent := sender.ProduceSync(within, records...)
	if err := sent.FirstErr(); err != nil {
		return nil, err
	}
	if asked.Acks == "0" {
		return nil, nil
	}
	return sent[0].Record.Offset, nil
}

func consume(within context.Context, asked arguments) (any, error) {
	place := kgo.NewOffset().AtStart()
	if asked.Offset >= 0 {
		place = kgo.NewOffset().At(asked.Offset)
	}
	reader, err := client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: {asked.Partition: place}}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	found, err := read(within, reader, asked.Count)
	return shown(found), err
}

func consumeGroup(within context.Context, asked arguments) (any, error) {
	reader, err := client(
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
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
	return shown(found), reader.CommitRecords(within, found...)
}

func offsetForTime(within context.Context, asked arguments) (any, error) {
	return listed(asked, func(admin *kadm.Client) (kadm.ListedOffsets, error) {
		return admin.ListOffsetsAfterMilli(within, asked.Timestamp, asked.Topic)
	})
}

func bounds(within context.Context, asked arguments) (any, error) {
	low, err := listed(asked, func(admin *kadm.Client) (kadm.ListedOffsets, error) {
		return admin.ListStartOffsets(within, asked.Topic)
	})
	if err != nil {
		return nil, err
	}
	high, err := listed(asked, func(admin *kadm.Client) (kadm.ListedOffsets, error) {
		return admin.ListEndOffsets(within, asked.Topic)
	})
	return []int64{low, high}, err
}

func committed(within context.Context, asked arguments) (any, error) {
	one, err := client()
	if err != nil {
		return nil, err
	}
	defer one.Close()
	offsets, err := kadm.NewClient(one).FetchOffsets(within, asked.Group)
	if err != nil {
		return nil, err
	}
	found, known := offsets.Lookup(asked.Topic, asked.Partition)
	if !known {
		return -1, nil
	}
	return found.At, found.Err
}

func listed(asked arguments, list func(*kadm.Client) (kadm.ListedOffsets, error)) (int64, error) {
	one, err := client()
	if err != nil {
		return 0, err
	}
	defer one.Close()
	offsets, err := list(kadm.NewClient(one))
	if err != nil {
		return 0, err
	}
	found, known := offsets.Lookup(asked.Topic, asked.Partition)
	if !known {
		return 0, kerr.UnknownTopicOrPartition
	}
	return found.Offset, found.Err
}

func read(within context.Context, reader *kgo.Client, count int) ([]*kgo.Record, error) {
	var found []*kgo.Record
	for len(found) < count {
		fetches := reader.PollFetches(within)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("%d records came: %w", len(found), err)
		}
		for _, one := range fetches.Errors() {
			return nil, one.Err
		}
		found = append(found, fetches.Records()...)
	}
	return found[:count], nil
}

func shown(records []*kgo.Record) []record {
	all := []record{}
	for _, one := range records {
		at := one.Timestamp.UnixMilli()
		made := record{one.Partition, one.Offset, one.Key, one.Value, [][2]*string{}, &at}
		for _, header := range one.Headers {
			made.Headers = append(made.Headers, [2]*string{&header.Key, textOf(header.Value)})
		}
		all = append(all, made)
	}
	return all
}

func bytesOf(text *string) ([]byte, error) {
	if text == nil {
		return nil, nil
	}
	return base64.StdEncoding.DecodeString(*text)
}

func textOf(data []byte) *string {
	if data == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(data)
	return &text
}
