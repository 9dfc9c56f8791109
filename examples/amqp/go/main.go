// Publish orders with confirms, and consume them with acks and a prefetch. Those that are rejected become dead letters.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	exchange = "go-shop"
	orders   = "go-orders"
	refused  = "go-orders-refused"
	count    = 1000
)

type order struct {
	Number int `json:"number"`
	Amount int `json:"amount"`
}

func main() {
	url := os.Getenv("AMQP_URL")
	if url == "" {
		url = "amqp://guest:guest@localhost:5672/"
	}
	if err := run(url); err != nil {
		log.Fatal(err)
	}
}

func run(url string) error {
	connection, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	for _, step := range []func(*amqp.Channel) error{declare, publish, consume, showRefused} {
		channel, err := connection.Channel()
		if err != nil {
			return err
		}
		if err := step(channel); err != nil {
			return err
		}
		if err := channel.Close(); err != nil {
			return err
		}
	}
	return nil
}

func declare(channel *amqp.Channel) error {
	if err := channel.ExchangeDeclare(exchange, "topic", true, false, false, false, nil); err != nil {
		return err
	}
	if _, err := channel.QueueDeclare(refused, true, false, false, false, nil); err != nil {
		return err
	}
	deadLetters := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": refused}
	if _, err := channel.QueueDeclare(orders, true, false, false, false, deadLetters); err != nil {
		return err
	}
	return channel.QueueBind(orders, "order.#", exchange, false, nil)
}

// publish sends all orders before it waits for their confirms, so that the broker can store many at once.
func publish(channel *amqp.Channel) error {
	if err := channel.Confirm(false); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var confirms []*amqp.DeferredConfirmation
	for number := 1; number <= count; number++ {
		one := order{Number: number, Amount: 10 * number}
		if number == 7 {
			one.Amount = 0
		}
		body, err := json.Marshal(one)
		if err != nil {
			return err
		}
		confirm, err := channel.PublishWithDeferredConfirmWithContext(ctx, exchange, "order.new", true, false, amqp.Publishing{
			ContentType:  "application/json",
			DeliveryMode: amqp.Persistent,
			MessageId:    fmt.Sprint(number),
			Body:         body,
		})
		if err != nil {
			return err
		}
		confirms = append(confirms, confirm)
	}
	for _, confirm := range confirms {
		if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
			return fmt.Errorf("message %d is not stored: %v", confirm.DeliveryTag, err)
		}
	}
	fmt.Println("confirmed", len(confirms))
	return nil
}

func consume(channel *amqp.Channel) error {
	if err := channel.Qos(100, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.Consume(orders, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	acked, rejected := 0, 0
	for acked+rejected < count {
		delivery, isOpen := <-deliveries
		if !isOpen {
			return fmt.Errorf("the consumer was ended")
		}
		var one order
		if err := json.Unmarshal(delivery.Body, &one); err != nil || one.Amount <= 0 {
			err = delivery.Reject(false)
			if err != nil {
				return err
			}
			rejected++
			continue
		}
		if err := delivery.Ack(false); err != nil {
			return err
		}
		acked++
	}
	fmt.Printf("acked %d, rejected %d\n", acked, rejected)
	return nil
}

// showRefused waits for the dead letter, which arrives a moment after its message was rejected.
func showRefused(channel *amqp.Channel) error {
	letters, err := channel.Consume(refused, "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	select {
	case letter, isOpen := <-letters:
		if !isOpen {
			return errors.New("the broker ended the consumer")
		}
		fmt.Printf("refused: order %s, %v\n", letter.MessageId, letter.Headers["x-first-death-reason"])
		return nil
	case <-time.After(10 * time.Second):
		return errors.New("no order was refused")
	}
}
