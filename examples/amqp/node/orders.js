// Publish orders with confirms, and consume them with acks and a prefetch. Those that are rejected become dead letters.
'use strict';

const amqp = require('amqplib');

const URL = process.env.AMQP_URL || 'amqp://guest:guest@localhost:5672/%2F';
const EXCHANGE = 'node-shop';
const ORDERS = 'node-orders';
const REFUSED = 'node-orders-refused';
const COUNT = 1000;

async function declare(channel) {
  await channel.assertExchange(EXCHANGE, 'topic', { durable: true });
  await channel.assertQueue(REFUSED, { durable: true });
  await channel.assertQueue(ORDERS, { durable: true, deadLetterExchange: '', deadLetterRoutingKey: REFUSED });
  await channel.bindQueue(ORDERS, EXCHANGE, 'order.#');
}

async function publish(connection) {
  const channel = await connection.createConfirmChannel();
  await declare(channel);
  for (let number = 1; number <= COUNT; number++) {
    const order = { number, amount: number === 7 ? 0 : 10 * number };
    const goesOn = channel.publish(EXCHANGE, 'order.new', Buffer.from(JSON.stringify(order)), {
      contentType: 'application/json',
      messageId: String(number),
      persistent: true,
    });
    if (!goesOn) await new Promise((resolve) => channel.once('drain', resolve));
  }
  await channel.waitForConfirms();
  console.log(`confirmed ${COUNT}`);
  await channel.close();
}

async function consume(connection) {
  const channel = await connection.createChannel();
  await channel.prefetch(100);
  let acked = 0;
  let rejected = 0;
  await new Promise((resolve) => {
    channel.consume(ORDERS, (message) => {
      if (message === null) return; // the broker ended the consumer: the queue was deleted
      const order = JSON.parse(message.content.toString());
      if (order.amount > 0) {
        channel.ack(message);
        acked += 1;
      } else {
        channel.reject(message, false);
        rejected += 1;
      }
      if (acked + rejected === COUNT) resolve();
    });
  });
  console.log(`acked ${acked}, rejected ${rejected}`);
  await channel.close();
}

async function refused(connection) {
  const channel = await connection.createChannel();
  // A rejected message arrives there a moment later, so it is waited for.
  const letter = await new Promise((resolve) => {
    channel.consume(REFUSED, resolve);
  });
  console.log(`refused: order ${letter.properties.messageId}, ${letter.properties.headers['x-first-death-reason']}`);
  channel.ack(letter);
  await channel.close();
}

async function main() {
  const connection = await amqp.connect(URL);
  try {
    await publish(connection);
    await consume(connection);
    await refused(connection);
  } finally {
    await connection.close();
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
