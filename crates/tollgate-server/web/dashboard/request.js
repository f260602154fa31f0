// Requests as text, such as `user=alice path="/a b"`, and the request that a key stands for.

/** The attributes that a text names. Throws an error that says what is wrong. */
export function parseRequest(source) {
  const attributes = {};
  const pattern = /\s*([^\s=]+)=("((?:[^"\\]|\\.)*)"|\S*)/gy;
  const trimmed = source.trim();
  if (trimmed === "") throw new Error("Type attributes, such as user=alice.");
  while (pattern.lastIndex < trimmed.length) {
    const from = pattern.lastIndex;
    const [, name, bare, quoted] = pattern.exec(trimmed) ?? [];
    if (name === undefined) {
      throw new Error(`“${trimmed.slice(from).trim()}” is not an attribute: type name=value, such as user=alice.`);
    }
    attributes[name] = quoted === undefined ? bare : quoted.replace(/\\(.)/g, "$1");
  }
  return attributes;
}

/** Attributes as text. */
export function writeRequest(attributes) {
  const quoted = (value) => (/^[^\s"]*$/.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`);
  return Object.entries(attributes).map(([name, value]) => `${name}=${quoted(value)}`).join(" ");
}

const isAddress = (value) => /^\d+\.\d+\.\d+\.\d+$/.test(value) || /^[\da-f]*:[\da-f:.]*(\/\d+)?$/i.test(value);

/** The service keeps as many bytes of a name. */
const LONGEST_NAME = 256;

/** The attributes that the parts of a key are values of. Null if that is not known. */
export function keyAttributes({ key: parts, descriptor }, key) {
  const isCut = new TextEncoder().encode(key.join(" ")).length > LONGEST_NAME - 4;
  if (parts.length !== key.length || (descriptor && key.length > 0) || isCut) return null;
  const attributes = {};
  for (const [i, part] of parts.entries()) {
    const names = part.split("|");
    const name = isAddress(key[i]) && names.includes("ip") ? "ip" : names[0];
    if (name !== "tier" && key[i] !== "") attributes[name] = key[i]; // the tier follows from the tenant
  }
  return attributes;
}

/** A request of a key to which the limit applies. Null if none can be made up. */
export function exampleRequest(policy, key) {
  const attributes = keyAttributes(policy, key);
  if (attributes === null || policy.descriptor) return attributes;
  for (const [name, patterns] of Object.entries(policy.match)) {
    if (name !== "tier") attributes[name] ??= patterns[0].replaceAll("*", "");
  }
  return attributes;
}
