// Cases of amqp-client.js over a WebSocket, with Node's own test runner: each has a connection, and queues of its own.
'use strict';

const { test } = require('node:test');
const assert = require('node:assert/strict');
const { once } = require('node:events');
const { randomUUID } = require('node:crypto');
const { WebSocket } = require('ws');
const { AMQPSession, AMQPWebSocketClient } = require('@cloudamqp/amqp-client');

// The client takes the WebSocket of the browser, which not every version of Node has. The last one opened is kept, for
// the case in which it is lost.
let opened;
globalThis.WebSocket = class extends WebSocket {
  constructor(...where) {
    super(...where);
    opened = this;
  }
};

const url = process.env.AMQP_WS_URL;

function withConnection(name, run, settings = {}) {
  test(name, { timeout: 60000 }, async () => {
    const connection = await new AMQPWebSocketClient({ url, ...settings }).connect();
    connection.onerror = () => {};
    try {
      await run(connection);
    } finally {
      await connection.close().catch(() => {});
    }
  });
}

function withChannel(name, run, settings = {}) {
  const inChannel = async (connection) => {
    const channel = await connection.channel();
    channel.onerror = () => {};
    await channel.confirmSelect();
    await run(channel, connection, `ws-${randomUUID()}`);
  };
  withConnection(name, inChannel, settings);
}

// Take messages until there are `count` of them.
async function take(channel, queue, count) {
  const messages = [];
  let end;
  const all = new Promise((resolve) => (end = resolve));
  const consumer = await channel.basicConsume(queue, { noAck: false }, (message) => {
    messages.push(message);
    if (messages.length === count) end();
  });
  await all;
  await consumer.cancel();
  return messages;
}

withConnection('a connection has several channels', async (connection) => {
  const channels = await Promise.all([connection.channel(), connection.channel(), connection.channel()]);
  assert.deepEqual(channels.map((channel) => channel.id), [1, 2, 3]);
});

test('a wrong password is refused', async () => {
  await assert.rejects(new AMQPWebSocketClient({ url, password: 'wrong' }).connect(), /ACCESS_REFUSED/);
});

test('a virtual host that does not exist is refused', async () => {
  await assert.rejects(new AMQPWebSocketClient({ url, vhost: 'no-such' }).connect(), /NOT_ALLOWED|not found/);
});

withChannel('a message comes with its properties', async (channel, _, queue) => {
  await channel.queueDeclare(queue, { durable: true, autoDelete: true });
  const sent = {
    contentType: 'text/plain',
    deliveryMode: 2,
    priority: 3,
    correlationId: 'correlation',
    messageId: 'message',
    expiration: '60000',
    headers: { text: 'a', number: 1, yes: true, list: [1, 'b'] },
  };
  await channel.basicPublish('', queue, 'hello', sent);
  const [message] = await take(channel, queue, 1);
  assert.equal(message.bodyString(), 'hello');
  for (const [name, value] of Object.entries(sent)) assert.deepEqual(message.properties[name], value, name);
  await message.ack();
});

withChannel('a topic exchange routes to its bindings', async (channel, _, name) => {
  await channel.queueDeclare(name, { exclusive: true });
  await channel.exchangeDeclare(name, 'topic', { autoDelete: true });
  await channel.queueBind(name, name, 'a.*');
  await channel.basicPublish(name, 'a.b', 'comes');
  await channel.basicPublish(name, 'b', 'does not');
  assert.equal((await channel.basicGet(name)).bodyString(), 'comes');
  assert.equal(await channel.basicGet(name), null);
  await channel.queueUnbind(name, name, 'a.*');
});

for (const size of [0, 8184, 8185, 1048576]) {
  const settings = { frameMax: 8192 };
  withChannel(`a body of ${size} bytes comes whole in frames of 8192`, async (channel, _, queue) => {
    await channel.queueDeclare(queue, { exclusive: true });
    await channel.basicPublish('', queue, Buffer.alloc(size, 'ab'));
    const body = (await channel.basicGet(queue))._rawBytes;
    assert.ok(Buffer.from(body ?? []).equals(Buffer.alloc(size, 'ab')));
  }, settings);
}

withChannel('confirms come for each message', async (channel) => {
  const publish = () => channel.basicPublish('amq.fanout', '', 'body');
  assert.deepEqual(await Promise.all([publish(), publish(), publish()]), [1, 2, 3]);
});

withChannel('a mandatory message without a queue returns', async (channel, _, name) => {
  const returned = new Promise((resolve) => (channel.onReturn = resolve));
  await channel.basicPublish('', name, 'nowhere', {}, true);
  assert.deepEqual([(await returned).replyCode, (await returned).routingKey], [312, name]);
});

withChannel('a full queue nacks', async (channel, _, queue) => {
  await channel.queueDeclare(queue, { exclusive: true }, { 'x-max-length': 1, 'x-overflow': 'reject-publish' });
  await channel.basicPublish('', queue, 'fits');
  await assert.rejects(channel.basicPublish('', queue, 'does not'), /rejected/);
});

withChannel('a rejected message returns to its place', async (channel, _, queue) => {
  await channel.queueDeclare(queue, { exclusive: true });
  for (const body of ['0', '1', '2']) await channel.basicPublish('', queue, body);
  await (await channel.basicGet(queue, { noAck: false })).reject(true);
  const [first] = await take(channel, queue, 3);
  assert.deepEqual([first.bodyString(), first.redelivered], ['0', true]);
});

withChannel('thousands of messages come in order', async (channel, _, queue) => {
  const count = 20000;
  await channel.queueDeclare(queue, { exclusive: true });
  await Promise.all(Array.from({ length: count }, (__, number) => channel.basicPublish('', queue, String(number))));
  const messages = await take(channel, queue, count);
  assert.deepEqual(messages.map((message) => Number(message.bodyString())), [...Array(count).keys()]);
});

withChannel('a consumer ends when its queue is deleted', async (channel, _, queue) => {
  await channel.queueDeclare(queue);
  const consumer = await channel.basicConsume(queue, {}, () => {});
  await channel.queueDelete(queue);
  await assert.rejects(consumer.wait(), /cancelled by the server/);
});

withConnection('transactions are committed and rolled back', async (connection) => {
  const channel = await connection.channel();
  const { name } = await channel.queueDeclare('', { exclusive: true });
  await channel.txSelect();
  await channel.basicPublish('', name, 'kept');
  await channel.txCommit();
  await channel.basicPublish('', name, 'forgotten');
  await channel.txRollback();
  assert.equal((await channel.basicGet(name)).bodyString(), 'kept');
  assert.equal(await channel.basicGet(name), null);
});

withChannel('an error closes its channel alone', async (channel, connection, queue) => {
  await assert.rejects(channel.queueDeclare(queue, { passive: true }), /NOT_FOUND/);
  assert.equal(channel.closed, true);
  const other = await connection.channel();
  assert.equal((await other.queueDeclare(queue, { exclusive: true })).name, queue);
});

test('a session consumes on after its WebSocket was lost', { timeout: 60000 }, async () => {
  const session = await AMQPSession.connect(url, { reconnectInterval: 10 });
  const queue = await session.queue(`ws-${randomUUID()}`);
  const bodies = [];
  let came = () => {};
  await queue.subscribe({ noAck: false }, async (message) => {
    bodies.push(message.bodyString());
    came();
  });
  const has = async (body) => {
    while (!bodies.includes(body)) await new Promise((resolve) => (came = resolve));
  };

  await queue.publish('before');
  await has('before');
  const lost = once(opened, 'close');
  opened.terminate();
  await lost;
  while (session.closed) await new Promise(setImmediate);
  await queue.publish('after');
  await has('after');

  await queue.delete();
  await session.stop();
});
