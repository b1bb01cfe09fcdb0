// Uses the local Pub/Sub through Google's Node library, unmodified, and says what held.
//
// Usage: node main.mjs PROJECT RELAY_TOPIC RELAY_SUBSCRIPTION, with PUBSUB_EMULATOR_HOST set. It prints a line per
// case, "PASS name" or "FAIL name: why", and "RECYCLE subscription" when it wants the streams of a subscription ended.
import { PubSub } from "@google-cloud/pubsub";
import { Bench } from "./bench.mjs";
import { cases, startIdling } from "./cases.mjs";

const [project, ...relay] = process.argv.slice(2);
if (relay.length !== 2) {
  console.error("usage: node main.mjs PROJECT RELAY_TOPIC RELAY_SUBSCRIPTION");
  process.exit(2);
}
const client = new PubSub({ projectId: project });
const bench = new Bench(client, project, relay);
bench.idling = startIdling(bench);
// Its failure is reported by the case that waits for it.
bench.idling.catch(() => {});
for (const [name, run] of Object.entries(cases)) {
  try {
    await run(bench);
    console.log(`PASS ${name}`);
  } catch (error) {
    process.exitCode = 1;
    console.log(`FAIL ${name}: ${error.message.split("\n")[0]}`);
  }
}
await client.close();
