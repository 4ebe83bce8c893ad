package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const stream = "LATER"

func serve(port int, directory string) error {
	one, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: directory, NoSigs: true,
		JetStreamMaxMemory: 8 << 30, JetStreamMaxStore: 32 << 30,
	})
	if err != nil {
		return err
	}
	one.Start()
	if !one.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("the server did not start")
	}
	return nil
}

type natsPeer struct{ js jetstream.JetStream }

func connectNATS(address string) (peer, error) {
	connection, err := nats.Connect("nats://" + address)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(10_000))
	return natsPeer{js}, err
}

// A schedule is a message on a subject of its own (ADR-51).
func (one natsPeer) schedule(dues []int64, size int) error {
	_, err := one.js.CreateOrUpdateStream(context.Background(), jetstream.StreamConfig{
		Name: stream, Subjects: []string{"later.>", "due"}, Storage: jetstream.FileStorage,
		AllowMsgSchedules: true,
	})
	if err != nil {
		return err
	}
	base := time.Now().UnixNano()
	for number, due := range dues {
		message := nats.NewMsg(fmt.Sprintf("later.%d.%d", base, number))
		message.Header.Set("Nats-Schedule", "@at "+time.UnixMilli(due).UTC().Format(time.RFC3339Nano))
		message.Header.Set("Nats-Schedule-Target", "due")
		message.Data = payload(due, size)
		if _, err := one.js.PublishMsgAsync(message); err != nil {
			return err
		}
	}
	<-one.js.PublishAsyncComplete()
	return nil
}

func (one natsPeer) receive(count int, each func([]byte)) error {
	consumer, err := one.js.OrderedConsumer(context.Background(), stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"due"},
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for ; count > 0; count-- {
		message, err := messages.Next()
		if err != nil {
			return err
		}
		each(message.Data())
	}
	return nil
}
