package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// parseParams reads -p flags: name=value for all channels, CHANNEL:name=value for one.
func parseParams(flags []string) (all map[string]any, channels map[string]map[string]any, err error) {
	for _, flag := range flags {
		key, value, ok := strings.Cut(flag, "=")
		if !ok {
			return nil, nil, fmt.Errorf("-p %s: expected name=value or CHANNEL:name=value", flag)
		}
		channel, name, ofChannel := strings.Cut(key, ":")
		if !ofChannel {
			channel, name = "", key
		}
		if name == "" || ofChannel && channel == "" {
			return nil, nil, fmt.Errorf("-p %s: expected name=value or CHANNEL:name=value", flag)
		}
		into := &all
		if ofChannel {
			if channels == nil {
				channels = map[string]map[string]any{}
			}
			m := channels[channel]
			into = &m
		}
		if *into == nil {
			*into = map[string]any{}
		}
		if _, twice := (*into)[name]; twice {
			return nil, nil, fmt.Errorf("-p %s: %s is given twice", flag, key)
		}
		(*into)[name] = typed(value)
		if ofChannel {
			channels[channel] = *into
		}
	}
	return all, channels, nil
}

// typed sends a value as what it looks like: true, false and JSON numbers as such, a text in double
// quotes as what stands between them, anything else as text. Whether it fits is the parameter's
// declaration to say.
func typed(value string) any {
	if strings.TrimSpace(value) != value || value == "" || strings.ContainsAny(value[:1], "[{n") {
		return value // a list, a map and null are text: parameters are scalars
	}
	d := json.NewDecoder(bytes.NewReader([]byte(value)))
	d.UseNumber() // a number keeps every digit
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return value
	}
	return v
}
