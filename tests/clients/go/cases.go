package main

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var cases = []struct {
	name string
	run  func(*bench) error
}{
	{"resources", resources},
	{"missing", missing},
	{"plain", plain},
	{"large", large},
	{"nack", nack},
	{"ordering", ordering},
	{"filter", filter},
	{"dead_letter", deadLetter},
	{"exactly_once", exactlyOnce},
	{"recycling", recycling},
	{"seek", seek},
	{"detach", detach},
	{"lease", lease},
	{"relay", relayed},
	{"idle", func(b *bench) error { return <-b.idling }},
}

// plain: binary bodies and attributes of any text arrive as they were, each once.
func plain(b *bench) error {
	if err := b.create("plain", &pb.Subscription{}); err != nil {
		return err
	}
	sent := make([]*pubsub.Message, count)
	for i := range sent {
		body := make([]byte, 300)
		for j := range body {
			body[j] = byte(i + 7*j)
		}
		sent[i] = &pubsub.Message{Data: body, Attributes: map[string]string{
			"n": strconv.Itoa(i), "имя": "значение", "名前": "値 🎈", "empty": "",
		}}
	}
	if err := b.publish(b.client.Publisher("plain"), sent); err != nil {
		return err
	}
	var lock sync.Mutex
	seen, wrong := map[string]bool{}, 0
	err := b.receive(b.client.Subscriber("plain"), count, func(message *pubsub.Message) bool {
		message.Ack()
		lock.Lock()
		defer lock.Unlock()
		n := message.Attributes["n"]
		i, err := strconv.Atoi(n)
		if err != nil || !bytes.Equal(message.Data, sent[i].Data) || !maps.Equal(message.Attributes, sent[i].Attributes) ||
			time.Since(message.PublishTime) > time.Minute || message.ID == "" {
			wrong++
		}
		seen[n] = true
		return true
	})
	if err != nil {
		return err
	}
	if wrong > 0 || len(seen) != count {
		return fmt.Errorf("%d changed, %d of %d came", wrong, len(seen), count)
	}
	return nil
}

// large: more than the 4 MiB of one response, and a request that the client compressed.
func large(b *bench) error {
	if err := b.create("large", &pb.Subscription{}); err != nil {
		return err
	}
	publisher := b.client.Publisher("large")
	publisher.PublishSettings.EnableCompression = true
	sent := numbered(12, func(i int, message *pubsub.Message) {
		message.Data = bytes.Repeat([]byte{byte(i)}, 900_000)
	})
	if err := b.publish(publisher, sent); err != nil {
		return err
	}
	seen, err := b.receiveAll("large", len(sent))
	for _, message := range sent {
		if err == nil && seen[string(message.Data)] != 1 {
			return fmt.Errorf("body %d came %d times", message.Data[0], seen[string(message.Data)])
		}
	}
	return err
}

// nack: what is given back comes again.
func nack(b *bench) error {
	if err := b.create("nack", &pb.Subscription{}); err != nil {
		return err
	}
	if err := b.publish(b.client.Publisher("nack"), numbered(count, nil)); err != nil {
		return err
	}
	var lock sync.Mutex
	deliveries := map[string]int{}
	err := b.receive(b.client.Subscriber("nack"), 2*count, func(message *pubsub.Message) bool {
		lock.Lock()
		defer lock.Unlock()
		deliveries[message.ID]++
		if deliveries[message.ID] == 1 {
			message.Nack()
		} else {
			message.Ack()
		}
		return true
	})
	if err == nil && len(deliveries) != count {
		return fmt.Errorf("%d messages came twice", len(deliveries))
	}
	return err
}

// ordering: each key's messages come in order; one that is given back comes again with all that follow it.
func ordering(b *bench) error {
	const keys, given = 10, 5
	if err := b.create("ordering", &pb.Subscription{EnableMessageOrdering: true}); err != nil {
		return err
	}
	publisher := b.client.Publisher("ordering")
	publisher.EnableMessageOrdering = true
	sent := numbered(count, func(i int, message *pubsub.Message) {
		message.Data = strconv.AppendInt(nil, int64(i/keys), 10)
		message.OrderingKey = fmt.Sprintf("key-%d", i%keys)
	})
	if err := b.publish(publisher, sent); err != nil {
		return err
	}
	var lock sync.Mutex
	next, nacked := map[string]int{}, map[string]bool{}
	var problem error
	err := b.receive(b.client.Subscriber("ordering"), count, func(message *pubsub.Message) bool {
		lock.Lock()
		defer lock.Unlock()
		key := message.OrderingKey
		place, _ := strconv.Atoi(string(message.Data))
		expected := next[key]
		if place == given && !nacked[key] {
			nacked[key] = true
			message.Nack()
			return false
		}
		message.Ack()
		if place == expected {
			next[key]++
			return true
		}
		// What the client held already still comes between the nack and its redelivery.
		if place < expected || expected != given || !nacked[key] {
			problem = fmt.Errorf("%d of %s came when %d was due", place, key, expected)
		}
		return false
	})
	if err != nil {
		return err
	}
	return problem
}

// filter: only what has the attribute comes.
func filter(b *bench) error {
	if err := b.create("filter", &pb.Subscription{Filter: "attributes:k"}); err != nil {
		return err
	}
	sent := numbered(count, func(i int, message *pubsub.Message) {
		message.Attributes = map[string]string{[]string{"k", "other"}[i%2]: "v"}
	})
	if err := b.publish(b.client.Publisher("filter"), sent); err != nil {
		return err
	}
	seen, err := b.receiveAll("filter", count/2)
	for body := range seen {
		if i, _ := strconv.Atoi(body); i%2 != 0 {
			return fmt.Errorf("%s has no attribute k", body)
		}
	}
	return err
}

// deadLetter: after five nacks a message goes to the dead-letter topic, with the attributes that say so.
func deadLetter(b *bench) error {
	if err := b.create("dead", &pb.Subscription{}); err != nil {
		return err
	}
	policy := &pb.DeadLetterPolicy{DeadLetterTopic: b.topicName("dead"), MaxDeliveryAttempts: 5}
	if err := b.create("dying", &pb.Subscription{DeadLetterPolicy: policy}); err != nil {
		return err
	}
	if err := b.publish(b.client.Publisher("dying"), numbered(3, nil)); err != nil {
		return err
	}
	var lock sync.Mutex
	attempts := map[string]string{}
	err := b.receive(b.client.Subscriber("dying"), 15, func(message *pubsub.Message) bool {
		lock.Lock()
		defer lock.Unlock()
		attempts[message.ID] += strconv.Itoa(*message.DeliveryAttempt)
		message.Nack()
		return true
	})
	if err != nil {
		return err
	}
	for _, numbers := range attempts {
		if numbers != "12345" {
			return fmt.Errorf("delivery attempts were %s", numbers)
		}
	}
	var problem error
	err = b.receive(b.client.Subscriber("dead"), 3, func(message *pubsub.Message) bool {
		message.Ack()
		if message.Attributes["CloudPubSubDeadLetterSourceSubscription"] != "dying" ||
			message.Attributes["CloudPubSubDeadLetterSourceDeliveryCount"] != "5" {
			problem = fmt.Errorf("attributes of a dead letter are %v", message.Attributes)
		}
		return true
	})
	if err != nil {
		return err
	}
	return problem
}

// exactlyOnce: with ordering, too, every ack is confirmed, and what was acked does not come again when streams end.
func exactlyOnce(b *bench) error {
	options := &pb.Subscription{EnableExactlyOnceDelivery: true, EnableMessageOrdering: true}
	if err := b.create("once", options); err != nil {
		return err
	}
	publisher := b.client.Publisher("once")
	publisher.EnableMessageOrdering = true
	sent := numbered(count, func(i int, message *pubsub.Message) {
		message.OrderingKey = strconv.Itoa(i % 20)
	})
	if err := b.publish(publisher, sent); err != nil {
		return err
	}
	var lock sync.Mutex
	seen := map[string]int{}
	var problem error
	err := b.receive(b.client.Subscriber("once"), count, func(message *pubsub.Message) bool {
		answer, err := message.AckWithResult().Get(b.ctx)
		lock.Lock()
		defer lock.Unlock()
		if err != nil || answer != pubsub.AcknowledgeStatusSuccess {
			problem = fmt.Errorf("an ack ended with %v, %v", answer, err)
		}
		seen[string(message.Data)]++
		if len(seen) == count/2 {
			fmt.Printf("RECYCLE %s\n", b.subscriptionName("once"))
		}
		return true
	})
	if err == nil && problem == nil && len(seen) != count {
		return fmt.Errorf("%d of %d came", len(seen), count)
	}
	if err != nil {
		return err
	}
	return problem
}

// recycling: streams that the service ends lose nothing.
func recycling(b *bench) error {
	const rounds = 5
	if err := b.create("recycling", &pb.Subscription{}); err != nil {
		return err
	}
	publisher := b.client.Publisher("recycling")
	var lock sync.Mutex
	seen := map[string]bool{}
	go func() {
		for _, message := range numbered(rounds*count, nil) {
			publisher.Publish(b.ctx, message)
			time.Sleep(2 * time.Millisecond)
		}
		publisher.Flush()
	}()
	err := b.receive(b.client.Subscriber("recycling"), rounds*count, func(message *pubsub.Message) bool {
		message.Ack()
		lock.Lock()
		defer lock.Unlock()
		if seen[string(message.Data)] {
			return false
		}
		seen[string(message.Data)] = true
		if len(seen)%count == count/2 {
			fmt.Printf("RECYCLE %s\n", b.subscriptionName("recycling"))
		}
		return true
	})
	publisher.Stop()
	return err
}

// seek: what was acked comes again after a seek back; nothing comes after a seek forward.
func seek(b *bench) error {
	if err := b.create("seek", &pb.Subscription{RetainAckedMessages: true}); err != nil {
		return err
	}
	began := time.Now().Add(-time.Minute)
	if err := b.publish(b.client.Publisher("seek"), numbered(count, nil)); err != nil {
		return err
	}
	for range 2 {
		seen, err := b.receiveAll("seek", count)
		if err != nil {
			return err
		}
		if len(seen) != count {
			return fmt.Errorf("%d of %d came", len(seen), count)
		}
		if err := b.seekTo("seek", began); err != nil {
			return err
		}
	}
	if err := b.seekTo("seek", time.Now().Add(time.Minute)); err != nil {
		return err
	}
	answer, err := b.client.SubscriptionAdminClient.Pull(b.ctx, &pb.PullRequest{
		Subscription: b.subscriptionName("seek"), MaxMessages: 10,
	})
	if err != nil && status.Code(err) != codes.DeadlineExceeded {
		return err
	}
	if n := len(answer.GetReceivedMessages()); n != 0 {
		return fmt.Errorf("%d messages after a seek forward", n)
	}
	return nil
}

func (b *bench) seekTo(id string, when time.Time) error {
	_, err := b.client.SubscriptionAdminClient.Seek(b.ctx, &pb.SeekRequest{
		Subscription: b.subscriptionName(id), Target: &pb.SeekRequest_Time{Time: timestamppb.New(when)},
	})
	return err
}

// lease: a handler that outlives the deadline keeps its message, because the client extends it.
func lease(b *bench) error {
	if err := b.create("lease", &pb.Subscription{AckDeadlineSeconds: 10}); err != nil {
		return err
	}
	if err := b.publish(b.client.Publisher("lease"), numbered(1, nil)); err != nil {
		return err
	}
	subscriber := b.client.Subscriber("lease")
	subscriber.ReceiveSettings.MaxDurationPerAckExtension = 10 * time.Second
	var deliveries atomic.Int64
	err := b.receive(subscriber, 1, func(message *pubsub.Message) bool {
		deliveries.Add(1)
		time.Sleep(12 * time.Second)
		message.Ack()
		return true
	})
	if n := deliveries.Load(); n > 1 {
		return fmt.Errorf("the message was delivered %d times", n)
	}
	return err
}

// relayed: a message that is due in a second comes through the relay at its time.
func relayed(b *bench) error {
	due := time.Now().Add(time.Second)
	sent := []*pubsub.Message{{Data: []byte("later"), Attributes: map[string]string{
		"available_at": fmt.Sprintf("%d.%03d", due.Unix(), due.Nanosecond()/1_000_000), "имя": "значение",
	}}}
	if err := b.publish(b.client.Publisher(b.relay[0]), sent); err != nil {
		return err
	}
	var problem error
	err := b.receive(b.client.Subscriber(b.relay[1]), 1, func(message *pubsub.Message) bool {
		message.Ack()
		late := time.Since(due.Truncate(time.Millisecond))
		own := 0
		for key := range message.Attributes {
			if strings.HasPrefix(key, "scheduler-") {
				own++
			}
		}
		if late < 0 || late > 2*time.Second || string(message.Data) != "later" || own != 5 ||
			message.Attributes["имя"] != "значение" {
			problem = fmt.Errorf("came %v late as %q with %v", late, message.Data, message.Attributes)
		}
		return true
	})
	if err != nil {
		return err
	}
	return problem
}
