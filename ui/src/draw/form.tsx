// A form from a JSON Schema: fields for what is simple, JSON for the rest. Knows schemas, not what the values are for.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Json, Schema } from "../api/types.ts";

export type Values = { [key: string]: Json };
type Field = { name: string; schema: Schema; isRequired: boolean };

export const fieldsOf = (schema: Schema | null): Field[] => {
  const properties = schema?.["properties"],
    required = Array.isArray(schema?.["required"]) ? (schema["required"] as string[]) : [];
  if (!properties || typeof properties !== "object") return [];
  return Object.entries(properties as Record<string, Schema>).map(([name, one]) => ({
    name,
    schema: one && typeof one === "object" ? one : {},
    isRequired: required.includes(name),
  }));
};

export const defaultsOf = (schema: Schema | null): Values => {
  const found: Values = {};
  for (const field of fieldsOf(schema))
    if (field.schema["default"] !== undefined) found[field.name] = field.schema["default"] as Json;
  return found;
};

const typeOf = (schema: Schema): string =>
  Array.isArray(schema["type"])
    ? String((schema["type"] as unknown[]).find((one) => one !== "null") ?? "")
    : String(schema["type"] ?? "");

type FieldProps = {
  field: Field;
  value: Json | undefined;
  onValue: (value: Json | undefined) => void;
  onBad: (problem: string) => void;
  testid: string;
};

const FieldInput = ({ field, value, onValue, onBad, testid }: FieldProps): JSX.Element => {
  const type = typeOf(field.schema),
    id = `${testid}-${field.name}`,
    options = field.schema["enum"];
  const [text, setText] = useState(() =>
    value === undefined ? "" : typeof value === "string" && type === "string" ? value : JSON.stringify(value),
  );
  const common = { id, "data-testid": id, "aria-required": field.isRequired || undefined, name: field.name };
  if (Array.isArray(options))
    return (
      <select
        {...common}
        value={value === undefined ? "" : JSON.stringify(value)}
        onChange={(event) => {
          const chosen = event.currentTarget.value;
          onValue(chosen === "" ? undefined : (JSON.parse(chosen) as Json));
        }}
      >
        {value === undefined && <option value="" />}
        {options.map((one) => (
          <option key={String(one)} value={JSON.stringify(one)}>
            {String(one)}
          </option>
        ))}
      </select>
    );
  if (type === "boolean")
    return (
      <input
        {...common}
        type="checkbox"
        checked={value === true}
        onChange={(event) => onValue(event.currentTarget.checked)}
      />
    );
  if (type === "number" || type === "integer")
    return (
      <input
        {...common}
        type="text"
        inputMode="decimal"
        value={text}
        onInput={(event) => {
          const typed = event.currentTarget.value.trim();
          setText(event.currentTarget.value);
          const number = Number(typed);
          if (typed === "") {
            onBad("");
            onValue(undefined);
          } else if (Number.isFinite(number)) {
            onBad("");
            onValue(number);
          } else onBad(`${field.name} must be a number`);
        }}
      />
    );
  if (type === "string")
    return (
      <input
        {...common}
        type="text"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          onValue(
            event.currentTarget.value === "" && !field.isRequired ? undefined : event.currentTarget.value,
          );
        }}
      />
    );
  return (
    <textarea
      {...common}
      rows={2}
      class="mono"
      spellcheck={false}
      value={text}
      placeholder="JSON"
      onInput={(event) => {
        const typed = event.currentTarget.value;
        setText(typed);
        if (typed.trim() === "") {
          onBad("");
          onValue(undefined);
          return;
        }
        try {
          onValue(JSON.parse(typed) as Json);
          onBad("");
        } catch {
          onBad(`${field.name} is not JSON`);
        }
      }}
    />
  );
};

export const SchemaForm = ({
  schema,
  values,
  onValues,
  onBad,
  testid,
}: {
  schema: Schema | null;
  values: Values;
  onValues: (values: Values) => void;
  onBad?: (problem: string) => void;
  testid: string;
}): JSX.Element => {
  const [problems, setProblems] = useState<Record<string, string>>({});
  const fields = fieldsOf(schema);
  const bad = (name: string, problem: string): void => {
    const next = { ...problems, [name]: problem };
    setProblems(next);
    onBad?.(Object.values(next).find(Boolean) ?? "");
  };
  return (
    <div class="fields">
      {fields.map((field) => (
        <div class={typeOf(field.schema) === "boolean" ? "field check" : "field"} key={field.name}>
          <label for={`${testid}-${field.name}`}>
            {String(field.schema["title"] ?? field.name)}
            {field.isRequired && <span class="dim"> *</span>}
          </label>
          <FieldInput
            field={field}
            value={values[field.name]}
            testid={testid}
            onBad={(problem) => bad(field.name, problem)}
            onValue={(value) => {
              const next = { ...values };
              if (value === undefined) delete next[field.name];
              else next[field.name] = value;
              onValues(next);
            }}
          />
          {typeof field.schema["description"] === "string" && (
            <small class="dim">{field.schema["description"]}</small>
          )}
          {problems[field.name] && (
            <small class="bad" role="alert">
              {problems[field.name]}
            </small>
          )}
        </div>
      ))}
    </div>
  );
};
