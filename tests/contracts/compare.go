package contracts

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Released is a contract as a released version had it: what it wrote, with something in every field and with nothing.
type Released struct {
	Contract string          `json:"contract"`
	Number   int             `json:"number"`
	Strict   bool            `json:"strict,omitempty"`
	Full     json.RawMessage `json:"full"`
	Empty    json.RawMessage `json:"empty"`
}

// Release is what a contract is now, to be kept when it is released.
func (c Contract) Release() (Released, error) {
	full, err := Full(c.Form)
	if err != nil {
		return Released{}, err
	}
	empty, err := Empty(c.Form)
	return Released{c.Name, c.Number, c.Strict, full, empty}, err
}

// Compare says what of a contract does not go together with a released version of it: a line for each field, with what
// to do about it. None: either reads what the other writes.
func (c Contract) Compare(before Released) ([]string, error) {
	if c.Number != before.Number {
		return nil, nil // whoever raised it saw to both
	}
	now, err := c.Release()
	if err != nil {
		return nil, err
	}
	old, full, empty := fields(before.Full), fields(now.Full), fields(now.Empty)
	wrong := c.unread(before, old)
	for _, path := range slices.Sorted(maps.Keys(full)) {
		was, known := old[path]
		switch {
		case known && kind(was) != kind(full[path]):
			wrong = append(wrong, fmt.Sprintf("%s: %s was %s and is %s now, which the version before cannot read; %s",
				c.Name, path, kind(was), kind(full[path]), "leave it as it was and add a field of another name"))
		case !known && before.Strict && has(empty, path):
			wrong = append(wrong, fmt.Sprintf("%s: %s is new and always written, and the version before refuses it; %s",
				c.Name, path, "mark it omitempty, so that it is sent only by who means it"))
		}
	}
	return wrong, nil
}

// unread are the fields that the version before wrote, and that are not read as they were.
func (c Contract) unread(before Released, old map[string]any) []string {
	value := reflect.New(typeOf(c.Form))
	if err := json.Unmarshal(before.Full, value.Interface()); err != nil {
		return []string{fmt.Sprintf("%s: what the version before wrote is not read: %s; %s",
			c.Name, err, "leave the field as it was and add one of another name")}
	}
	again, err := marshal(value)
	if err != nil {
		return []string{err.Error()}
	}
	now := fields(again)
	var wrong []string
	for _, path := range slices.Sorted(maps.Keys(old)) {
		if have, there := now[path]; !there {
			wrong = append(wrong, fmt.Sprintf("%s: %s is gone, which the version before writes and wants to read; %s",
				c.Name, path, "keep it until no released version has it, or give the contract another number (CONTRIBUTING.md, Contracts)"))
		} else if !reflect.DeepEqual(have, old[path]) {
			wrong = append(wrong, fmt.Sprintf("%s: %s was written as %v and is read as %v; leave it as it was and add a field of another name",
				c.Name, path, old[path], have))
		}
	}
	return wrong
}

func has(m map[string]any, path string) bool { _, there := m[path]; return there }

// fields are the values in a JSON document by path: "releases[].version".
func fields(document json.RawMessage) map[string]any {
	var v any
	out := map[string]any{}
	if json.Unmarshal(document, &v) == nil {
		walk(v, "", out)
	}
	return out
}

func walk(v any, path string, out map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		if path != "" {
			out[path] = holder("an object")
			path += "."
		}
		for name, value := range v {
			walk(value, path+name, out)
		}
	case []any:
		out[path] = holder("a list")
		for _, value := range v {
			walk(value, path+"[]", out)
		}
	default:
		out[path] = v
	}
}

// holder stands for a value that holds others, which have paths of their own.
type holder string

// kind is what JSON calls a value.
func kind(v any) string {
	switch v := v.(type) {
	case holder:
		return string(v)
	case string:
		return "a string"
	case float64:
		return "a number"
	case bool:
		return "a boolean"
	}
	return "null"
}
