// A client in Go, from the contract alone: it declares a queue, publishes 1,000 messages with confirms, consumes and
// acknowledges them, and prints what it did. Everything it knows of the broker is in proto/penstock/v1.
package main

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "example.com/penstock-client/penstockv1"
)

const queue = "go-example"

func main() {
	address := flag.String("address", "127.0.0.1:5680", "host:port of the broker")
	user := flag.String("user", "guest", "user name")
	password := flag.String("password", "guest", "password")
	count := flag.Int("count", 1000, "messages to publish")
	flag.Parse()

	if err := run(*address, *user, *password, *count); err != nil {
		log.Fatal(err)
	}
}

func run(address, user, password string, count int) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	credentials := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+credentials)

	admin := pb.NewAdminServiceClient(connection)
	if _, err := admin.DeclareQueue(ctx, &pb.DeclareQueueRequest{Queue: &pb.Queue{Name: queue, Durable: true}}); err != nil {
		return fmt.Errorf("declare: %w", err)
	}

	messaging := pb.NewMessagingServiceClient(connection)
	confirmed, err := publish(ctx, messaging, count)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	fmt.Printf("confirmed %d\n", confirmed)

	consumed, err := consume(ctx, messaging, count)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	fmt.Printf("consumed %d in order\n", consumed)

	deleted, err := admin.DeleteQueue(ctx, &pb.DeleteQueueRequest{Name: queue})
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	fmt.Printf("left behind %d\n", deleted.DroppedCount)
	return nil
}

// publish sends the messages in batches of 100 and waits until each has its confirm.
func publish(ctx context.Context, messaging pb.MessagingServiceClient, count int) (int, error) {
	stream, err := messaging.Publish(ctx)
	if err != nil {
		return 0, err
	}
	open := &pb.PublishRequest{Request: &pb.PublishRequest_Open{Open: &pb.PublishOpen{Durability: pb.Durability_DURABILITY_OS}}}
	if err := stream.Send(open); err != nil {
		return 0, err
	}
	for sent := 0; sent < count; {
		batch := &pb.PublishBatch{RoutingKey: queue, Mandatory: true}
		for len(batch.Messages) < 100 && sent < count {
			batch.Messages = append(batch.Messages, &pb.Message{Body: fmt.Appendf(nil, "message %d", sent)})
			sent++
		}
		if err := stream.Send(&pb.PublishRequest{Request: &pb.PublishRequest_Batch{Batch: batch}}); err != nil {
			return 0, err
		}
	}

	confirmed := 0
	for confirmed < count {
		response, err := stream.Recv()
		if err != nil {
			return confirmed, err
		}
		if len(response.Returned) > 0 || len(response.Rejected) > 0 {
			return confirmed, fmt.Errorf("not stored: %v %v", response.Returned, response.Rejected)
		}
		for _, numbers := range response.Confirmed {
			confirmed += int(numbers.Last - numbers.First + 1)
		}
	}
	return confirmed, stream.CloseSend()
}

// consume takes the messages, checks their order and acknowledges each batch in one request.
func consume(ctx context.Context, messaging pb.MessagingServiceClient, count int) (int, error) {
	stream, err := messaging.Consume(ctx)
	if err != nil {
		return 0, err
	}
	open := &pb.ConsumeRequest{Request: &pb.ConsumeRequest_Open{Open: &pb.ConsumeOpen{Queue: queue, Prefetch: 200}}}
	if err := stream.Send(open); err != nil {
		return 0, err
	}

	consumed := 0
	for consumed < count {
		response, err := stream.Recv()
		if err != nil {
			return consumed, err
		}
		deliveries := response.GetDeliveries().GetDeliveries()
		if len(deliveries) == 0 {
			continue
		}
		settlement := &pb.Settlement{Outcome: pb.Outcome_OUTCOME_ACK}
		for _, delivery := range deliveries {
			if want := fmt.Sprintf("message %d", consumed); string(delivery.Body) != want {
				return consumed, fmt.Errorf("got %q, expected %q", delivery.Body, want)
			}
			settlement.Ranges = append(settlement.Ranges, &pb.Range{First: delivery.Sequence, Last: delivery.Sequence})
			consumed++
		}
		if err := stream.Send(&pb.ConsumeRequest{Request: &pb.ConsumeRequest_Settle{Settle: settlement}}); err != nil {
			return consumed, err
		}
	}
	// Closing says that no settlement follows; the broker answers by ending the stream, and all is settled then.
	if err := stream.CloseSend(); err != nil {
		return consumed, err
	}
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return consumed, nil
		} else if err != nil {
			return consumed, err
		}
	}
}
