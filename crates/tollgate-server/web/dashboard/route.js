// The address bar: which limit, key or request is shown. It never has the admin token.

/** What the address asks for: `{ limit, key, request }`, each null if it is absent. */
export function route() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const keys = fragment.getAll("key");
  return {
    limit: fragment.get("limit"),
    key: keys.length > 0 ? keys : fragment.has("everybody") ? [] : null,
    request: fragment.get("request"),
  };
}

export function limitAddress(name) {
  return `#${new URLSearchParams({ limit: name })}`;
}

/** The address of a key. `request` is the request that is to be explained with it, as text. */
export function keyAddress(name, key, request = null) {
  const fragment = new URLSearchParams({ limit: name });
  for (const value of key) fragment.append("key", value);
  if (key.length === 0) fragment.append("everybody", "");
  if (request !== null) fragment.append("request", request);
  return `#${fragment}`;
}

export function requestAddress(request) {
  return `#${new URLSearchParams({ request })}`;
}
