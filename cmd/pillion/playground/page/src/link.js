// SPDX-License-Identifier: Apache-2.0

// The fragment of a link is the state as JSON, compressed, in the alphabet of base64url.
const most = 1 << 20; // bytes of JSON
export const fields = ['templates', 'manifest', 'namespaceLabels', 'namespaceAnnotations', 'accountLabels', 'accountAnnotations', 'final', 'policy', 'tab'];

export async function encode(state) {
  const json = new Blob([JSON.stringify(state)]);
  if (json.size > most) throw new Error('the text is longer than 1 MiB');
  const stream = json.stream().pipeThrough(new CompressionStream('deflate-raw'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = '';
  for (const b of bytes) text += String.fromCharCode(b);
  return '#s=' + btoa(text).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

// decode returns the state in a fragment, or null if it has none. It reads no more than a limit, because a short
// fragment can be very long when it is decompressed.
export async function decode(fragment) {
  if (!fragment.startsWith('#s=')) return null;
  const bytes = Uint8Array.from(atob(fragment.slice(3).replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw')).getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (let size = 0; ;) {
    const {done, value} = await reader.read();
    if (done) break;
    if ((size += value.length) > most) {
      await reader.cancel();
      throw new Error('the link is too long');
    }
    text += decoder.decode(value, {stream: true});
  }
  return only(JSON.parse(text));
}

// only returns the known fields that are strings.
export function only(state) {
  return Object.fromEntries(fields.filter((f) => typeof state?.[f] === 'string').map((f) => [f, state[f]]));
}
