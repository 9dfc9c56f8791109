// Cases of amqplib's interface, with Node's own test runner: each has a connection, and queues of its own.
'use strict';

const { test } = require('node:test');
const assert = require('node:assert/strict');
const { once } = require('node:events');
const { randomUUID } = require('node:crypto');
const amqp = require('amqplib');
const callbacks = require('amqplib/callback_api');

const URL = process.env.AMQP_URL;

function withConnection(name, run) {
  test(name, { timeout: 20000 }, async () => {
    const connection = await amqp.connect(URL);
    connection.on('error', () => {});
    try {
      await run(connection);
    } finally {
      await connection.close().catch(() => {});
    }
  });
}

function withChannel(name, run) {
  withConnection(name, async (connection) => {
    const channel = await connection.createConfirmChannel();
    channel.on('error', () => {});
    await run(channel, connection, `node-${randomUUID()}`);
  });
}

async function refusal(channel, run) {
  const said = once(channel, 'error');
  await Promise.allSettled([run()]);
  const [error] = await said;
  return error;
}

async function fill(channel, queue, count, options = {}) {
  await channel.assertQueue(queue, options);
  for (let number = 0; number < count; number++) channel.sendToQueue(queue, Buffer.from(String(number)));
  await channel.waitForConfirms();
}

// Take messages until there are `count` of them.
async function take(channel, queue, count, options = {}) {
  const messages = [];
  let consumer;
  await new Promise((resolve, reject) => {
    channel
      .consume(
        queue,
        (message) => {
          messages.push(message);
          if (messages.length === count) resolve();
        },
        options,
      )
      .then((answer) => {
        consumer = answer.consumerTag;
      }, reject);
  });
  await channel.cancel(consumer);
  return messages;
}

const text = (message) => message.content.toString();

withConnection('a connection opens and closes', async (connection) => {
  await connection.createChannel();
});

withConnection('the server says what it is and can', async (connection) => {
  const { serverProperties } = connection.connection;
  for (const name of ['publisher_confirms', 'basic.nack', 'consumer_cancel_notify', 'connection.blocked']) {
    assert.equal(serverProperties.capabilities[name], true, name);
  }
});

test('a wrong password is refused', async () => {
  await assert.rejects(amqp.connect(URL.replace('guest@', 'wrong@')), /ACCESS.REFUSED/);
});

test('a virtual host that does not exist is refused', async () => {
  await assert.rejects(amqp.connect(URL.replace(/%2F$/, 'no-such')), /ConnectionClose/);
});

test('a secret is updated', async () => {
  const connection = await amqp.connect(URL);
  await connection.updateSecret(Buffer.from('guest'), 'a test');
  await connection.close();
});

withChannel('a queue is declared, checked, emptied and deleted', async (channel, _, queue) => {
  await fill(channel, queue, 3);
  assert.equal((await channel.checkQueue(queue)).messageCount, 3);
  assert.equal((await channel.purgeQueue(queue)).messageCount, 3);
  assert.equal((await channel.deleteQueue(queue)).messageCount, 0);
});

withChannel('the broker names a queue that has no name', async (channel) => {
  const { queue } = await channel.assertQueue('', { exclusive: true });
  assert.match(queue, /^amq\.gen-/);
});

withChannel('a queue that does not exist is not found', async (channel, _, queue) => {
  const error = await refusal(channel, () => channel.checkQueue(queue));
  assert.equal(error.code, 404);
  assert.match(error.message, new RegExp(`NOT_FOUND - no queue '${queue}' in vhost '/'`));
});

withChannel('an exchange that does not exist is not found', async (channel, _, name) => {
  const error = await refusal(channel, () => channel.checkExchange(name));
  assert.equal(error.code, 404);
});

withChannel('another declaration of a queue is refused', async (channel, _, queue) => {
  await channel.assertQueue(queue, { durable: true });
  const error = await refusal(channel, () => channel.assertQueue(queue, { durable: true, maxPriority: 5 }));
  assert.equal(error.code, 406);
  assert.match(error.message, /PRECONDITION_FAILED - inequivalent arg 'x-max-priority'/);
});

withChannel('a queue that is in use, or not empty, is not deleted', async (channel, _, queue) => {
  await fill(channel, queue, 1);
  const error = await refusal(channel, () => channel.deleteQueue(queue, { ifEmpty: true }));
  assert.equal(error.code, 406);
});

withConnection('an exclusive queue is locked for others', async (connection) => {
  const queue = randomUUID();
  await (await connection.createChannel()).assertQueue(queue, { exclusive: true });
  const other = await amqp.connect(URL);
  const channel = await other.createChannel();
  const error = await refusal(channel, () => channel.checkQueue(queue));
  assert.equal(error.code, 405);
  await other.close();
});

for (const type of ['direct', 'topic', 'fanout', 'headers']) {
  withChannel(`an exchange of type ${type} routes`, async (channel, _, name) => {
    await channel.assertQueue(name);
    await channel.assertExchange(name, type, { autoDelete: true });
    await channel.bindQueue(name, name, type === 'topic' ? 'a.*' : 'a.b', { 'x-match': 'all', colour: 'red' });
    channel.publish(name, 'a.b', Buffer.from('comes'), { headers: { colour: 'red' } });
    channel.publish(name, type === 'fanout' ? 'a.b' : 'c', Buffer.from('other'), { headers: {} });
    await channel.waitForConfirms();
    assert.equal((await channel.checkQueue(name)).messageCount, type === 'fanout' ? 2 : 1);
    assert.equal(text(await channel.get(name)), 'comes');
    await channel.unbindQueue(name, name, type === 'topic' ? 'a.*' : 'a.b', { 'x-match': 'all', colour: 'red' });
    await channel.deleteQueue(name);
  });
}

withChannel('exchanges are bound to exchanges', async (channel, _, name) => {
  await channel.assertQueue(name);
  for (const end of ['from', 'to']) await channel.assertExchange(`${name}-${end}`, 'fanout', { autoDelete: true });
  await channel.bindExchange(`${name}-to`, `${name}-from`, '');
  await channel.bindQueue(name, `${name}-to`, '');
  channel.publish(`${name}-from`, '', Buffer.from('through'));
  await channel.waitForConfirms();
  assert.equal(text(await channel.get(name)), 'through');
  await channel.unbindExchange(`${name}-to`, `${name}-from`, '');
  await channel.deleteExchange(`${name}-to`);
});

withChannel('an alternate exchange gets what matches nothing', async (channel, _, name) => {
  await channel.assertQueue(name);
  await channel.assertExchange(`${name}-rest`, 'fanout');
  await channel.bindQueue(name, `${name}-rest`, '');
  await channel.assertExchange(name, 'direct', { alternateExchange: `${name}-rest` });
  channel.publish(name, 'nothing', Buffer.from('rest'));
  await channel.waitForConfirms();
  assert.equal(text(await channel.get(name)), 'rest');
  await channel.deleteExchange(name);
  await channel.deleteExchange(`${name}-rest`);
});

withChannel('all properties come as they were sent', async (channel, _, queue) => {
  await channel.assertQueue(queue);
  const sent = {
    contentType: 'text/plain',
    contentEncoding: 'utf-8',
    deliveryMode: 2,
    priority: 3,
    correlationId: 'correlation',
    replyTo: 'reply',
    messageId: 'message',
    timestamp: 1700000000,
    type: 'type',
    userId: 'guest',
    appId: 'app',
    expiration: '60000',
    headers: { text: 'a', number: 1, big: 2 ** 40, real: 1.5, yes: true, list: [1, 'b'], inner: { c: null } },
  };
  channel.sendToQueue(queue, Buffer.from('body'), sent);
  const message = await channel.get(queue);
  for (const [name, value] of Object.entries(sent)) assert.deepEqual(message.properties[name], value, name);
});

for (const size of [0, 1, 4088, 131064, 131065, 1048576, 5000000]) {
  withChannel(`a body of ${size} bytes comes whole`, async (channel, _, queue) => {
    await channel.assertQueue(queue);
    const body = Buffer.alloc(size, 'ab');
    channel.sendToQueue(queue, body);
    assert.ok((await channel.get(queue, { noAck: true })).content.equals(body));
  });
}

withChannel('a mandatory message without a queue returns before its confirm', async (channel) => {
  const seen = [];
  channel.on('return', (message) => seen.push([message.fields.replyCode, message.fields.replyText]));
  channel.publish('', randomUUID(), Buffer.from('nowhere'), { mandatory: true }, () => seen.push('confirmed'));
  await channel.waitForConfirms();
  assert.deepEqual(seen, [[312, 'NO_ROUTE'], 'confirmed']);
});

withChannel('a message to an exchange that does not exist closes the channel', async (channel, _, name) => {
  const error = await refusal(channel, async () => channel.publish(name, 'key', Buffer.from('lost')));
  assert.equal(error.code, 404);
});

withChannel('a full queue nacks', async (channel, _, queue) => {
  await channel.assertQueue(queue, { maxLength: 1, arguments: { 'x-overflow': 'reject-publish' } });
  channel.sendToQueue(queue, Buffer.from('fits'));
  await channel.waitForConfirms();
  channel.sendToQueue(queue, Buffer.from('does not'));
  await assert.rejects(channel.waitForConfirms());
});

withChannel('get on an empty queue returns false', async (channel, _, queue) => {
  await channel.assertQueue(queue);
  assert.equal(await channel.get(queue), false);
});

withChannel('messages come in order, with a prefetch and acks', async (channel, _, queue) => {
  await fill(channel, queue, 500);
  await channel.prefetch(10);
  const bodies = [];
  await new Promise((resolve) => {
    channel.consume(queue, (message) => {
      bodies.push(Number(text(message)));
      channel.ack(message);
      if (bodies.length === 500) resolve();
    });
  });
  assert.deepEqual(bodies, [...Array(500).keys()]);
});

withChannel('no more come than the prefetch of a channel allows', async (channel, _, queue) => {
  await fill(channel, queue, 10);
  await channel.prefetch(3, true);
  const messages = [];
  await channel.consume(queue, (message) => messages.push(message));
  await channel.checkQueue(queue);
  assert.ok(messages.length <= 3);
  assert.ok((await channel.checkQueue(queue)).messageCount >= 7);
});

withChannel('one ack settles all before it', async (channel, _, queue) => {
  await fill(channel, queue, 5);
  const messages = await take(channel, queue, 5);
  channel.ack(messages[4], true);
  await channel.recover();
  assert.equal((await channel.checkQueue(queue)).messageCount, 0);
});

for (const [name, settle] of [
  ['ackAll', (channel) => channel.ackAll()],
  ['nackAll without requeue', (channel) => channel.nackAll(false)],
  ['nack of all without requeue', (channel, messages) => channel.nack(messages[4], true, false)],
]) {
  withChannel(`${name} leaves nothing`, async (channel, _, queue) => {
    await fill(channel, queue, 5);
    settle(channel, await take(channel, queue, 5));
    assert.equal((await channel.checkQueue(queue)).messageCount, 0);
  });
}

for (const [name, settle] of [
  ['nack', (channel, message) => channel.nack(message)],
  ['reject', (channel, message) => channel.reject(message, true)],
  ['nackAll', (channel) => channel.nackAll()],
  ['recover', (channel) => channel.recover()],
]) {
  withChannel(`${name} returns a message to its place`, async (channel, _, queue) => {
    await fill(channel, queue, 3);
    settle(channel, await channel.get(queue));
    const [first] = await take(channel, queue, 3);
    assert.deepEqual([text(first), first.fields.redelivered], ['0', true]);
  });
}

withChannel('an ack of what was acked closes the channel', async (channel, _, queue) => {
  await fill(channel, queue, 1);
  const message = await channel.get(queue);
  const error = await refusal(channel, async () => {
    channel.ack(message);
    channel.ack(message);
  });
  assert.equal(error.code, 406);
  assert.match(error.message, /unknown delivery tag 1/);
});

withConnection('what a closed channel had comes again', async (connection) => {
  const queue = randomUUID();
  const first = await connection.createConfirmChannel();
  await fill(first, queue, 2, { autoDelete: false });
  await take(first, queue, 2);
  await first.close();
  const second = await connection.createChannel();
  const messages = await take(second, queue, 2);
  assert.deepEqual(messages.map((message) => [text(message), message.fields.redelivered]), [['0', true], ['1', true]]);
  await second.deleteQueue(queue);
});

withChannel('a consumer hears that its queue was deleted', async (channel, _, queue) => {
  await channel.assertQueue(queue);
  const ended = new Promise((resolve) => channel.consume(queue, resolve));
  await channel.checkQueue(queue);
  await channel.deleteQueue(queue);
  assert.equal(await ended, null);
});

withChannel('an exclusive consumer is alone', async (channel, connection, queue) => {
  await channel.assertQueue(queue);
  await channel.consume(queue, () => {}, { exclusive: true });
  const other = await connection.createChannel();
  const error = await refusal(other, () => other.consume(queue, () => {}));
  assert.equal(error.code, 403);
});

withChannel('a consumer of a higher priority comes first', async (channel, _, queue) => {
  await channel.assertQueue(queue);
  const seen = [];
  await channel.consume(queue, () => seen.push('low'), { priority: 1, noAck: true });
  await channel.consume(queue, () => seen.push('high'), { priority: 5, noAck: true });
  channel.sendToQueue(queue, Buffer.from('a'));
  channel.sendToQueue(queue, Buffer.from('b'));
  await channel.waitForConfirms();
  while (seen.length < 2) await new Promise(setImmediate);
  assert.deepEqual(seen, ['high', 'high']);
});

withChannel('messages of a higher priority come first', async (channel, _, queue) => {
  await channel.assertQueue(queue, { maxPriority: 9 });
  for (const priority of [1, 9, 5]) channel.sendToQueue(queue, Buffer.from(String(priority)), { priority });
  await channel.waitForConfirms();
  assert.deepEqual((await take(channel, queue, 3)).map(text), ['9', '5', '1']);
});

withChannel('a rejected message becomes a dead letter', async (channel, _, queue) => {
  await channel.assertQueue(`${queue}-dead`);
  await fill(channel, queue, 1, { deadLetterExchange: '', deadLetterRoutingKey: `${queue}-dead` });
  channel.reject(await channel.get(queue), false);
  const [letter] = await take(channel, `${queue}-dead`, 1);
  assert.equal(letter.properties.headers['x-death'][0].reason, 'rejected');
  assert.equal(letter.properties.headers['x-death'][0].queue, queue);
});

withChannel('an expired message becomes a dead letter', async (channel, _, queue) => {
  await channel.assertQueue(`${queue}-dead`);
  await fill(channel, queue, 1, { messageTtl: 50, deadLetterExchange: '', deadLetterRoutingKey: `${queue}-dead` });
  const [letter] = await take(channel, `${queue}-dead`, 1);
  assert.equal(letter.properties.headers['x-first-death-reason'], 'expired');
});

withChannel('a request gets a direct reply', async (channel, connection) => {
  const { queue } = await channel.assertQueue('', { exclusive: true });
  const server = await connection.createChannel();
  await server.consume(queue, (message) => {
    server.publish('', message.properties.replyTo, Buffer.from(`re: ${text(message)}`));
    server.ack(message);
  });
  const reply = new Promise((resolve) => channel.consume('amq.rabbitmq.reply-to', resolve, { noAck: true }));
  await channel.checkQueue(queue);
  channel.sendToQueue(queue, Buffer.from('hello'), { replyTo: 'amq.rabbitmq.reply-to' });
  assert.equal(text(await reply), 're: hello');
});

withChannel('a stream is read twice', async (channel, _, queue) => {
  await fill(channel, queue, 5, { durable: true, arguments: { 'x-queue-type': 'stream' } });
  await channel.prefetch(10);
  for (let turn = 0; turn < 2; turn++) {
    const messages = await take(channel, queue, 5, { arguments: { 'x-stream-offset': 'first' } });
    assert.deepEqual(messages.map(text), ['0', '1', '2', '3', '4']);
    channel.ackAll();
  }
  await channel.deleteQueue(queue);
});

withConnection('many channels work side by side', async (connection) => {
  const channels = await Promise.all(Array.from({ length: 100 }, () => connection.createConfirmChannel()));
  const queue = randomUUID();
  await channels[0].assertQueue(queue);
  channels.forEach((channel) => channel.sendToQueue(queue, Buffer.from('one')));
  await Promise.all(channels.map((channel) => channel.waitForConfirms()));
  assert.equal((await channels[0].checkQueue(queue)).messageCount, 100);
  await channels[0].deleteQueue(queue);
});

test('the interface with callbacks works', { timeout: 20000 }, async () => {
  const queue = randomUUID();
  const body = await new Promise((resolve, reject) => {
    callbacks.connect(URL, (failed, connection) => {
      if (failed) return reject(failed);
      return connection.createChannel((error, channel) => {
        if (error) return reject(error);
        channel.assertQueue(queue, { exclusive: true });
        channel.sendToQueue(queue, Buffer.from('called back'));
        return channel.consume(queue, (message) => {
          channel.ack(message);
          connection.close(() => resolve(text(message)));
        });
      });
    });
  });
  assert.equal(body, 'called back');
});
