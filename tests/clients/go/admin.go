package main

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// resources: topics and subscriptions are made, read, listed, changed and deleted.
func resources(b *bench) error {
	topics, subscriptions := b.client.TopicAdminClient, b.client.SubscriptionAdminClient
	if err := b.create("resources", &pb.Subscription{Labels: map[string]string{"team": "a"}}); err != nil {
		return err
	}
	if err := b.create("resources", &pb.Subscription{}); status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("a second topic of the same name: %v", err)
	}
	topic, err := topics.UpdateTopic(b.ctx, &pb.UpdateTopicRequest{
		Topic:      &pb.Topic{Name: b.topicName("resources"), Labels: map[string]string{"k": "v"}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
	})
	if err != nil || topic.Labels["k"] != "v" {
		return fmt.Errorf("the changed topic is %v, %v", topic, err)
	}
	subscription, err := subscriptions.UpdateSubscription(b.ctx, &pb.UpdateSubscriptionRequest{
		Subscription: &pb.Subscription{
			Name: b.subscriptionName("resources"), AckDeadlineSeconds: 30,
			RetryPolicy: &pb.RetryPolicy{MinimumBackoff: durationpb.New(1e9)},
		},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"ack_deadline_seconds", "retry_policy"}},
	})
	if err != nil {
		return err
	}
	read, err := subscriptions.GetSubscription(b.ctx, &pb.GetSubscriptionRequest{Subscription: subscription.Name})
	if err != nil || read.AckDeadlineSeconds != 30 || read.Labels["team"] != "a" || read.RetryPolicy.MinimumBackoff.Seconds != 1 {
		return fmt.Errorf("the changed subscription is %v, %v", read, err)
	}
	if err := b.listed("resources"); err != nil {
		return err
	}
	if err := topics.DeleteTopic(b.ctx, &pb.DeleteTopicRequest{Topic: topic.Name}); err != nil {
		return err
	}
	read, err = subscriptions.GetSubscription(b.ctx, &pb.GetSubscriptionRequest{Subscription: subscription.Name})
	if err != nil || read.Topic != "_deleted-topic_" {
		return fmt.Errorf("without its topic the subscription is %v, %v", read, err)
	}
	return subscriptions.DeleteSubscription(b.ctx, &pb.DeleteSubscriptionRequest{Subscription: subscription.Name})
}

// listed looks for the topic and its subscription in the three lists, page by page.
func (b *bench) listed(id string) error {
	found := map[string]bool{}
	topics := b.client.TopicAdminClient.ListTopics(b.ctx, &pb.ListTopicsRequest{
		Project: "projects/" + b.project, PageSize: 1,
	})
	for topic, err := topics.Next(); !errors.Is(err, iterator.Done); topic, err = topics.Next() {
		if err != nil {
			return err
		}
		found[topic.Name] = true
	}
	subscriptions := b.client.SubscriptionAdminClient.ListSubscriptions(b.ctx, &pb.ListSubscriptionsRequest{
		Project: "projects/" + b.project, PageSize: 1,
	})
	for subscription, err := subscriptions.Next(); !errors.Is(err, iterator.Done); subscription, err = subscriptions.Next() {
		if err != nil {
			return err
		}
		found[subscription.Name] = true
	}
	if !found[b.topicName(id)] || !found[b.subscriptionName(id)] {
		return fmt.Errorf("only %v are listed", found)
	}
	names := b.client.TopicAdminClient.ListTopicSubscriptions(b.ctx, &pb.ListTopicSubscriptionsRequest{
		Topic: b.topicName(id),
	})
	if name, err := names.Next(); err != nil || name != b.subscriptionName(id) {
		return fmt.Errorf("the topic's subscription is %v, %v", name, err)
	}
	return nil
}

// missing: what does not exist is NOT_FOUND, in every call.
func missing(b *bench) error {
	_, getTopic := b.client.TopicAdminClient.GetTopic(b.ctx, &pb.GetTopicRequest{Topic: b.topicName("nowhere")})
	_, getSubscription := b.client.SubscriptionAdminClient.GetSubscription(b.ctx, &pb.GetSubscriptionRequest{
		Subscription: b.subscriptionName("nowhere"),
	})
	publish := b.publish(b.client.Publisher("nowhere"), numbered(1, nil))
	receive := b.client.Subscriber("nowhere").Receive(b.ctx, func(context.Context, *pubsub.Message) {})
	for call, err := range map[string]error{
		"GetTopic": getTopic, "GetSubscription": getSubscription, "Publish": publish, "Receive": receive,
	} {
		if status.Code(err) != codes.NotFound {
			return fmt.Errorf("%s answered %v", call, err)
		}
	}
	return nil
}

// detach: a detached subscription says so and its receiver ends.
func detach(b *bench) error {
	if err := b.create("detach", &pb.Subscription{}); err != nil {
		return err
	}
	if err := b.publish(b.client.Publisher("detach"), numbered(1, nil)); err != nil {
		return err
	}
	detached := false
	var refused error
	err := b.client.Subscriber("detach").Receive(b.ctx, func(_ context.Context, message *pubsub.Message) {
		message.Ack()
		_, refused = b.client.TopicAdminClient.DetachSubscription(b.ctx, &pb.DetachSubscriptionRequest{
			Subscription: b.subscriptionName("detach"),
		})
		detached = refused == nil
	})
	if !detached || status.Code(err) != codes.FailedPrecondition {
		return fmt.Errorf("detaching: %v; the receiver ended with %v", refused, err)
	}
	read, err := b.client.SubscriptionAdminClient.GetSubscription(b.ctx, &pb.GetSubscriptionRequest{
		Subscription: b.subscriptionName("detach"),
	})
	if err != nil || !read.Detached {
		return fmt.Errorf("the detached subscription is %v, %v", read, err)
	}
	return nil
}
