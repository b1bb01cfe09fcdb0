// The cases: the same as in the other languages, each named in the runner.
import { isDeepStrictEqual } from "node:util";
import { setTimeout as pause } from "node:timers/promises";
import { Duration } from "@google-cloud/pubsub";
import { COUNT, check, codeOf, numbered, status } from "./bench.mjs";

/** Longer than a stream may be silent: what some libraries wait for an answer to a ping, every 30 s, is 15 s. */
const IDLE_MS = 60_000;

/** Topics and subscriptions are made, read, listed, changed and deleted. */
async function resources(bench) {
  const { client } = bench;
  await bench.create("resources", { labels: { team: "a" } });
  check((await codeOf(client.createTopic("resources"))) === status.alreadyExists, "a second topic of the same name");
  const topic = client.topic("resources");
  const [changed] = await topic.setMetadata({ labels: { k: "v" } });
  check(changed.labels.k === "v", `the changed topic is ${JSON.stringify(changed)}`);
  const subscription = client.subscription("resources");
  await subscription.setMetadata({ ackDeadlineSeconds: 30, retryPolicy: { minimumBackoff: { seconds: 1 } } });
  const [read] = await subscription.getMetadata();
  check(
    read.ackDeadlineSeconds === 30 && read.labels.team === "a" && Number(read.retryPolicy.minimumBackoff.seconds) === 1,
    `the changed subscription is ${JSON.stringify(read)}`,
  );
  const topics = await allPages((query) => client.getTopics(query));
  const subscriptions = await allPages((query) => client.getSubscriptions(query));
  const [below] = await topic.getSubscriptions();
  check(topics.some(({ name }) => name === bench.topicName("resources")), "the topic is not listed");
  for (const list of [subscriptions, below]) {
    check(list.some(({ name }) => name === bench.subscriptionName("resources")), "the subscription is not listed");
  }
  await topic.delete();
  const [orphan] = await subscription.getMetadata();
  check(orphan.topic === "_deleted-topic_", `without its topic the subscription is ${JSON.stringify(orphan)}`);
  await subscription.delete();
  check(!(await subscription.exists())[0], "the subscription is still there");
}

/** The items of a list call, one a page. */
async function allPages(list) {
  const found = [];
  let query = { autoPaginate: false, pageSize: 1 };
  while (query) {
    const [items, following] = await list(query);
    found.push(...items);
    query = following?.pageToken ? { ...query, pageToken: following.pageToken } : undefined;
  }
  return found;
}

/** What does not exist is NOT_FOUND, in every call. */
async function missing(bench) {
  const { client } = bench;
  const calls = {
    getTopic: () => client.topic("nowhere").getMetadata(),
    getSubscription: () => client.subscription("nowhere").getMetadata(),
    publish: () => bench.publish("nowhere", numbered(1)),
    receive: () => bench.receive("nowhere", 1, () => true),
  };
  for (const [name, call] of Object.entries(calls)) {
    const code = await codeOf(call());
    check(code === status.notFound, `${name} answered ${code}`);
  }
}

/** Binary bodies and attributes of any text arrive as they were, each once. */
async function plain(bench) {
  await bench.create("plain");
  const sent = numbered(COUNT, (i) => ({
    data: Buffer.from(Array.from({ length: 300 }, (_, j) => (i + 7 * j) % 256)),
    attributes: { n: String(i), имя: "значение", 名前: "値 🎈", empty: "" },
  }));
  await bench.publish("plain", sent);
  const seen = new Set();
  await bench.receive("plain", COUNT, (message) => {
    message.ack();
    const expected = sent[Number(message.attributes.n)];
    check(expected.data.equals(message.data), `body ${message.attributes.n} changed`);
    check(isDeepStrictEqual({ ...message.attributes }, expected.attributes), `attributes ${message.attributes.n} changed`);
    check(Math.abs(Date.now() - message.publishTime) < 60_000, `published at ${message.publishTime}`);
    seen.add(message.attributes.n);
    return true;
  });
  check(seen.size === COUNT, `${seen.size} of ${COUNT} came`);
}

/** More than the 4 MiB of one response. */
async function large(bench) {
  await bench.create("large");
  const sent = numbered(12, (i) => ({ data: Buffer.alloc(900_000, i) }));
  await bench.publish("large", sent);
  const seen = await bench.receiveAll("large", sent.length);
  check(sent.every(({ data }) => seen.get(data.toString("latin1")) === 1), "a body came not once or changed");
}

/** What is given back comes again. */
async function nack(bench) {
  await bench.create("nack");
  await bench.publish("nack", numbered(COUNT));
  const deliveries = new Map();
  await bench.receive("nack", 2 * COUNT, (message) => {
    const before = deliveries.get(message.id) ?? 0;
    deliveries.set(message.id, before + 1);
    if (before === 0) message.nack();
    else message.ack();
    return true;
  });
  check(deliveries.size === COUNT, `${deliveries.size} messages came twice`);
}

/** Each key's messages come in order; one that is given back comes again with all that follow it. */
async function ordering(bench) {
  const keys = 10;
  const given = 5;
  await bench.create("ordering", { enableMessageOrdering: true });
  const sent = numbered(COUNT, (i) => ({
    data: Buffer.from(String(Math.floor(i / keys))),
    orderingKey: `key-${i % keys}`,
  }));
  await bench.publish("ordering", sent, { messageOrdering: true });
  const next = new Map();
  const nacked = new Set();
  await bench.receive("ordering", COUNT, (message) => {
    const key = message.orderingKey;
    const place = Number(message.data);
    const expected = next.get(key) ?? 0;
    if (place === given && !nacked.has(key)) {
      nacked.add(key);
      message.nack();
      return false;
    }
    message.ack();
    if (place === expected) {
      next.set(key, place + 1);
      return true;
    }
    // What the client held already still comes between the nack and its redelivery.
    const held = place > expected && expected === given && nacked.has(key);
    check(held, `${place} of ${key} came when ${expected} was due`);
    return false;
  });
}

/** Only what has the attribute comes. */
async function filter(bench) {
  await bench.create("filter", { filter: "attributes:k" });
  await bench.publish("filter", numbered(COUNT, (i) => ({ attributes: { [i % 2 ? "other" : "k"]: "v" } })));
  const seen = await bench.receiveAll("filter", COUNT / 2);
  check([...seen.keys()].every((body) => Number(body) % 2 === 0), "one without the attribute k came");
}

/** After five nacks a message goes to the dead-letter topic, with the attributes that say so. */
async function deadLetter(bench) {
  await bench.create("dead");
  const deadLetterPolicy = { deadLetterTopic: bench.topicName("dead"), maxDeliveryAttempts: 5 };
  await bench.create("dying", { deadLetterPolicy });
  await bench.publish("dying", numbered(3));
  const attempts = new Map();
  await bench.receive("dying", 15, (message) => {
    attempts.set(message.id, (attempts.get(message.id) ?? "") + message.deliveryAttempt);
    message.nack();
    return true;
  });
  check([...attempts.values()].every((all) => all === "12345"), `delivery attempts were ${[...attempts.values()]}`);
  await bench.receive("dead", 3, (message) => {
    message.ack();
    const source = message.attributes.CloudPubSubDeadLetterSourceSubscription;
    const count = message.attributes.CloudPubSubDeadLetterSourceDeliveryCount;
    check(source === "dying" && count === "5", `attributes of a dead letter: ${JSON.stringify(message.attributes)}`);
    return true;
  });
}

/** With ordering, too, every ack is confirmed, and what was acked does not come again when streams end. */
async function exactlyOnce(bench) {
  await bench.create("once", { enableExactlyOnceDelivery: true, enableMessageOrdering: true });
  const sent = numbered(COUNT, (i) => ({ orderingKey: String(i % 20) }));
  await bench.publish("once", sent, { messageOrdering: true });
  const seen = new Set();
  await bench.receive("once", COUNT, async (message) => {
    const answer = await message.ackWithResponse();
    check(answer === "SUCCESS", `an ack ended with ${answer}`);
    seen.add(String(message.data));
    if (seen.size === COUNT / 2) console.log(`RECYCLE ${bench.subscriptionName("once")}`);
    return true;
  });
  check(seen.size === COUNT, `${seen.size} of ${COUNT} came`);
}

/** Streams that the service ends lose nothing. */
async function recycling(bench) {
  const all = 5 * COUNT;
  await bench.create("recycling");
  const publishing = (async () => {
    for (const message of numbered(all)) {
      await bench.publish("recycling", [message], { batching: { maxMilliseconds: 1 } });
    }
  })();
  const seen = new Set();
  await bench.receive("recycling", all, (message) => {
    message.ack();
    const body = String(message.data);
    if (seen.has(body)) return false;
    seen.add(body);
    if (seen.size % COUNT === COUNT / 2) console.log(`RECYCLE ${bench.subscriptionName("recycling")}`);
    return true;
  });
  await publishing;
}

/** What was acked comes again after a seek back; nothing comes after a seek forward. */
async function seek(bench) {
  await bench.create("seek", { retainAckedMessages: true });
  const subscription = bench.client.subscription("seek");
  const before = new Date(Date.now() - 60_000);
  await bench.publish("seek", numbered(COUNT));
  for (let round = 0; round < 2; round += 1) {
    const seen = await bench.receiveAll("seek", COUNT);
    check(seen.size === COUNT, `${seen.size} of ${COUNT} came`);
    await subscription.seek(before);
  }
  await subscription.seek(new Date(Date.now() + 60_000));
  let came = 0;
  subscription.on("message", (message) => {
    came += 1;
    message.ack();
  });
  await pause(1000);
  await subscription.close();
  check(came === 0, `${came} messages after a seek forward`);
}

/** A detached subscription says so and its receiver ends. */
async function detach(bench) {
  await bench.create("detach");
  await bench.publish("detach", numbered(1));
  const receiving = bench.receive("detach", 2, async (message) => {
    message.ack();
    await bench.client.detachSubscription("detach");
    return true;
  });
  const code = await codeOf(receiving);
  check(code === status.failedPrecondition, `the receiver ended with ${code}`);
  check((await bench.client.subscription("detach").detached())[0], "the subscription is not detached");
}

/** A handler that outlives the deadline keeps its message, because the client extends it. */
async function lease(bench) {
  await bench.create("lease", { ackDeadlineSeconds: 10 });
  await bench.publish("lease", numbered(1));
  const deadline = Duration.from({ seconds: 10 });
  let deliveries = 0;
  const handle = async (message) => {
    deliveries += 1;
    await pause(12_000);
    message.ack();
    return true;
  };
  await bench.receive("lease", 1, handle, { minAckDeadline: deadline, maxAckDeadline: deadline });
  check(deliveries === 1, `the message was delivered ${deliveries} times`);
}

/** A message that is due in a second comes through the relay at its time. */
async function relay(bench) {
  const due = Date.now() + 1000;
  const attributes = { available_at: (due / 1000).toFixed(3), имя: "значение" };
  await bench.publish(bench.relay[0], [{ data: Buffer.from("later"), attributes }]);
  await bench.receive(bench.relay[1], 1, (message) => {
    message.ack();
    const late = Date.now() - due;
    const own = Object.keys(message.attributes).filter((key) => key.startsWith("scheduler-"));
    check(late >= 0 && late <= 2000, `came ${late} ms late`);
    check(own.length === 5 && message.attributes.имя === "значение", JSON.stringify(message.attributes));
    check(String(message.data) === "later", `body is ${message.data}`);
    return true;
  });
}

/** A receiver without messages keeps its stream, and gets the first message that comes. Runs beside the other cases. */
async function idle(bench) {
  check(await bench.idling, "the message did not come");
}

/** Starts that receiver; true once it has kept its streams for a minute and got its message. */
export async function startIdling(bench) {
  await bench.create("idle");
  const streams = [];
  const receiving = bench.receive("idle", 1, (message) => (message.ack(), true), {}, {
    waitMs: 2 * IDLE_MS,
    onDebug: (debug) => streams.push(debug.message),
  });
  const publishing = pause(IDLE_MS).then(() => bench.publish("idle", numbered(1)));
  await Promise.all([receiving, publishing]);
  check(streams.length === 0, `streams ended while idle: ${streams}`);
  return true;
}

export const cases = {
  resources,
  missing,
  plain,
  large,
  nack,
  ordering,
  filter,
  dead_letter: deadLetter,
  exactly_once: exactlyOnce,
  recycling,
  seek,
  detach,
  lease,
  relay,
  idle,
};
