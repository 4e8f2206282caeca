// Shows /openapi.json and lets one try what it says. Everything is put into the page as text, never as HTML.
"use strict";

const make = (name, attributes = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element[key] = value;
  element.append(...children);
  return element;
};

// A schema with its references followed, some levels deep: enough to read, and never endless.
const resolved = (api, schema, depth = 0) => {
  if (schema === null || typeof schema !== "object" || depth > 6) return schema;
  if (Array.isArray(schema)) return schema.map((one) => resolved(api, one, depth + 1));
  if (schema.$ref) return resolved(api, api.components.schemas[schema.$ref.split("/").pop()], depth + 1);
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, resolved(api, value, depth + 1)]));
};

// The Markdown of descriptions: paragraphs, code in backquotes, and links.
const prose = (text) => text.trim().split(/\n\n+/).map((paragraph) => make("p", {},
  ...paragraph.split(/(`[^`]+`|\[[^\]]+\]\([^)\s]+\))/).map((part) => {
    const link = /^\[([^\]]+)\]\((https?:[^)\s]+|\/[^)\s]*)\)$/.exec(part);
    if (link) return make("a", { href: link[2] }, link[1]);
    return part.length > 2 && part.startsWith("`") && part.endsWith("`") ? make("code", {}, part.slice(1, -1)) : part;
  })));

// A first body to change: one value per key that is needed, or every key if none is.
const example = (schema) => {
  if (!schema) return null;
  if (schema.default !== undefined && schema.default !== null) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf) return example(schema.anyOf[0]);
  if (schema.type === "object") {
    const names = schema.required?.length ? schema.required : Object.keys(schema.properties ?? {}).slice(0, 2);
    return Object.fromEntries(names.map((name) => [name, example(schema.properties[name])]));
  }
  return { string: "", integer: 1, number: 0, boolean: false, array: [] }[schema.type] ?? null;
};

const parameterRow = (parameter, fields) => {
  const input = make("input", { placeholder: parameter.required ? "needed" : "", size: 30 });
  fields.push([parameter, input]);
  const name = make("code", {}, parameter.name);
  return make("tr", {}, make("td", {}, name), make("td", {}, parameter.in), make("td", {}, input),
    make("td", {}, make("code", {}, JSON.stringify(parameter.schema))));
};

const send = async (method, path, fields, body) => {
  let address = `.${path}`; // this page may stand under a prefix
  const query = new URLSearchParams();
  const headers = {};
  const key = document.getElementById("key").value;
  if (key) headers.Authorization = `Bearer ${key}`;
  for (const [parameter, input] of fields) {
    if (parameter.in === "path") address = address.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value && parameter.in === "query") query.set(parameter.name, input.value);
    else if (input.value) headers[parameter.name] = input.value;
  }
  if (body !== null) headers["Content-Type"] = "application/json";
  const text = query.toString();
  return fetch(text ? `${address}?${text}` : address, { method, headers, body: body === null ? undefined : body });
};

const readable = (text) => {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text.slice(0, 100000); }
};

const operation = (api, path, method, said) => {
  const fields = [];
  const details = make("details", { className: "operation" },
    make("summary", {}, make("span", { className: "method" }, method.toUpperCase()),
      make("span", { className: "path" }, path), make("span", { className: "said" }, said.summary)));
  details.dataset.words = `${method} ${path} ${said.summary}`.toLowerCase();
  details.addEventListener("toggle", () => {
    if (!details.open || details.dataset.built) return;
    details.dataset.built = "1";
    if (said.description) details.append(...prose(said.description));
    if (said.parameters.length) {
      details.append(make("table", {}, ...said.parameters.map((each) => parameterRow(each, fields))));
    }
    const wanted = said.requestBody?.content?.["application/json"];
    const schema = wanted ? resolved(api, wanted.schema) : null;
    const first = wanted?.example ?? example(schema);
    const body = schema ? make("textarea", { value: JSON.stringify(first, null, 2), spellcheck: false }) : null;
    if (body && schema.description) details.append(...prose(schema.description));
    if (body) details.append(make("p", {}, "Body"), body, made("Its schema", schema));
    const answer = make("div");
    const button = make("button", { type: "button" }, "Send");
    button.addEventListener("click", async () => {
      answer.replaceChildren("…");
      try {
        const got = await send(method.toUpperCase(), path, fields, body ? body.value : null);
        answer.replaceChildren(make("p", { className: "status" }, `${got.status} ${got.statusText}`),
          make("pre", {}, readable(await got.text())));
      } catch (error) {
        answer.replaceChildren(make("p", { className: "status" }, String(error)));
      }
    });
    details.append(make("p", {}, button), answer, make("h4", {}, "Answers"));
    for (const [status, one] of Object.entries(said.responses)) {
      const shape = Object.values(one.content ?? {})[0]?.schema;
      details.append(made(`${status}: ${one.description}`, resolved(api, shape ?? {})));
    }
  });
  return details;
};

const made = (title, value) =>
  make("details", {}, make("summary", {}, ...prose(title)[0].childNodes), make("pre", {}, JSON.stringify(value, null, 2)));

const show = (api) => {
  document.getElementById("version").textContent = api.info.version;
  document.querySelector("header p").after(...prose(api.info.description));
  const byTag = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, said] of Object.entries(methods)) {
      const tag = said.tags[0];
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push(operation(api, path, method, said));
    }
  }
  const sections = [...byTag].map(([tag, operations]) => make("section", {}, make("h2", {}, tag), ...operations));
  document.getElementById("operations").replaceChildren(...sections);
  document.getElementById("find").addEventListener("input", (event) => {
    const word = event.target.value.toLowerCase();
    for (const each of document.querySelectorAll(".operation")) each.hidden = !each.dataset.words.includes(word);
  });
};

fetch("openapi.json").then((answer) => answer.json()).then(show, (error) => {
  document.getElementById("operations").textContent = `/openapi.json cannot be read: ${error}`;
});
