// Command clients uses the local Pub/Sub through Google's Go library, unmodified, and says what held.
//
// Usage: clients PROJECT RELAY_TOPIC RELAY_SUBSCRIPTION, with PUBSUB_EMULATOR_HOST set. It prints a line per case,
// "PASS name" or "FAIL name: why", and "RECYCLE subscription" when it wants the streams of a subscription ended.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

const (
	// count is how many messages most cases send.
	count = 200
	// caseTimeout bounds one case.
	caseTimeout = 60 * time.Second
	// quiet is how long a receiver goes on after what it waited for, to see what must not come.
	quiet = time.Second
)

type bench struct {
	ctx     context.Context
	client  *pubsub.Client
	project string
	relay   [2]string
	idling  <-chan error
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: clients PROJECT RELAY_TOPIC RELAY_SUBSCRIPTION")
		os.Exit(2)
	}
	client, err := pubsub.NewClient(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	idling := make(chan error, 1)
	go func() { idling <- idle(os.Args[1]) }()
	failed := false
	for _, one := range cases {
		ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
		err := one.run(&bench{
			ctx: ctx, client: client, project: os.Args[1], relay: [2]string{os.Args[2], os.Args[3]}, idling: idling,
		})
		cancel()
		if err != nil {
			failed = true
			fmt.Printf("FAIL %s: %v\n", one.name, err)
			continue
		}
		fmt.Printf("PASS %s\n", one.name)
	}
	if err := client.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if failed {
		os.Exit(1)
	}
}

func (b *bench) topicName(id string) string {
	return fmt.Sprintf("projects/%s/topics/%s", b.project, id)
}

func (b *bench) subscriptionName(id string) string {
	return fmt.Sprintf("projects/%s/subscriptions/%s", b.project, id)
}

// create makes a topic and a subscription of the same id.
func (b *bench) create(id string, options *pb.Subscription) error {
	if _, err := b.client.TopicAdminClient.CreateTopic(b.ctx, &pb.Topic{Name: b.topicName(id)}); err != nil {
		return err
	}
	options.Name, options.Topic = b.subscriptionName(id), b.topicName(id)
	_, err := b.client.SubscriptionAdminClient.CreateSubscription(b.ctx, options)
	return err
}

// publish sends all messages and waits for their ids.
func (b *bench) publish(publisher *pubsub.Publisher, messages []*pubsub.Message) error {
	var results []*pubsub.PublishResult
	for _, message := range messages {
		results = append(results, publisher.Publish(b.ctx, message))
	}
	publisher.Stop()
	for _, result := range results {
		if _, err := result.Get(b.ctx); err != nil {
			return err
		}
	}
	return nil
}

// receive hands messages to handle until it has said true `want` times and it was quiet for a while.
func (b *bench) receive(subscriber *pubsub.Subscriber, want int, handle func(*pubsub.Message) bool) error {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var lock sync.Mutex
	got := 0
	err := subscriber.Receive(ctx, func(_ context.Context, message *pubsub.Message) {
		counts := handle(message)
		lock.Lock()
		defer lock.Unlock()
		if counts {
			got++
		}
		if got == want {
			time.AfterFunc(quiet, cancel)
		}
	})
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("received %d of %d", got, want)
	}
	return nil
}

// receiveAll acks each message and returns how often each body came.
func (b *bench) receiveAll(id string, want int) (map[string]int, error) {
	var lock sync.Mutex
	seen := map[string]int{}
	err := b.receive(b.client.Subscriber(id), want, func(message *pubsub.Message) bool {
		message.Ack()
		lock.Lock()
		defer lock.Unlock()
		seen[string(message.Data)]++
		return true
	})
	return seen, err
}

// numbered makes messages whose bodies are their numbers.
func numbered(n int, change func(int, *pubsub.Message)) []*pubsub.Message {
	messages := make([]*pubsub.Message, n)
	for i := range messages {
		messages[i] = &pubsub.Message{Data: fmt.Appendf(nil, "%d", i)}
		if change != nil {
			change(i, messages[i])
		}
	}
	return messages
}
