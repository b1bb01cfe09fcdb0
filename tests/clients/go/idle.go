package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
)

const (
	// settled is when the receiver's streams are open for sure.
	settled = 5 * time.Second
	// idleFor is longer than the library waits for an answer to its pings: every 30 s, 15 s, looked at every 10 s.
	idleFor = 60 * time.Second
)

// idle: a receiver without messages keeps its streams, and gets the first message that comes. It takes a minute and a
// client of its own, and runs beside the other cases.
func idle(project string) error {
	var opened atomic.Int64
	count := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		if strings.HasSuffix(method, "/StreamingPull") {
			opened.Add(1)
		}
		return open(ctx, desc, conn, method, options...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*idleFor)
	defer cancel()
	client, err := pubsub.NewClient(ctx, project, option.WithGRPCDialOption(grpc.WithStreamInterceptor(count)))
	if err != nil {
		return err
	}
	defer client.Close()
	b := &bench{ctx: ctx, client: client, project: project}
	if err := b.create("idle", &pb.Subscription{}); err != nil {
		return err
	}
	problem := make(chan error, 1)
	go func() {
		time.Sleep(settled)
		before := opened.Load()
		time.Sleep(idleFor)
		again := opened.Load() - before
		err := b.publish(client.Publisher("idle"), numbered(1, nil))
		if err == nil && (before == 0 || again != 0) {
			err = fmt.Errorf("%d streams were opened, and %d more while idle", before, again)
		}
		problem <- err
	}()
	if _, err := b.receiveAll("idle", 1); err != nil {
		return err
	}
	return <-problem
}
