// What every case needs: names, resources, publishing, and a receiver that knows when it has enough.
import { setTimeout as pause } from "node:timers/promises";

export const COUNT = 200;
/** How long a receiver goes on after what it waited for, to see what must not come. */
const QUIET_MS = 1000;
const RECEIVE_MS = 45_000;

export const status = { notFound: 5, alreadyExists: 6, failedPrecondition: 9 };

/** Throws with the text unless the condition holds. */
export function check(holds, text) {
  if (!holds) throw new Error(text);
}

/** The gRPC status of a call that should fail; undefined when it does not. */
export async function codeOf(call) {
  try {
    await call;
  } catch (error) {
    return error.code;
  }
}

/** Messages whose bodies are their numbers. */
export function numbered(count, change = () => ({})) {
  return Array.from({ length: count }, (_, i) => ({ data: Buffer.from(String(i)), ...change(i) }));
}

export class Bench {
  constructor(client, project, relay) {
    this.client = client;
    this.project = project;
    this.relay = relay;
  }

  topicName(id) {
    return `projects/${this.project}/topics/${id}`;
  }

  subscriptionName(id) {
    return `projects/${this.project}/subscriptions/${id}`;
  }

  /** Makes a topic and a subscription of the same id. */
  async create(id, options = {}) {
    await this.client.createTopic(id);
    await this.client.createSubscription(id, id, options);
  }

  /** Sends all messages and waits for their ids. */
  async publish(id, messages, options = {}) {
    const topic = this.client.topic(id, options);
    await Promise.all(messages.map((message) => topic.publishMessage(message)));
  }

  /** Hands messages to `handle` until it has said true `want` times and it was quiet for a while. */
  async receive(id, want, handle, options = {}, { waitMs = RECEIVE_MS, onDebug = () => {} } = {}) {
    const subscription = this.client.subscription(id, options);
    subscription.on("debug", onDebug);
    let got = 0;
    let failed;
    const enough = new Promise((resolve, reject) => {
      subscription.on("error", reject);
      subscription.on("message", async (message) => {
        try {
          if (await handle(message)) got += 1;
        } catch (error) {
          failed ??= error;
          message.ack();
        }
        if (got >= want || failed) resolve();
      });
    });
    const late = new AbortController();
    try {
      await Promise.race([enough, pause(waitMs, undefined, { signal: late.signal })]);
      await pause(QUIET_MS);
    } finally {
      late.abort();
      await subscription.close();
    }
    if (failed) throw failed;
    check(got === want, `received ${got} of ${want}`);
  }

  /** Acks each message; how often each body came. */
  async receiveAll(id, want) {
    const seen = new Map();
    await this.receive(id, want, (message) => {
      message.ack();
      const body = message.data.toString("latin1");
      seen.set(body, (seen.get(body) ?? 0) + 1);
      return true;
    });
    return seen;
  }
}
