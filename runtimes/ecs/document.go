package ecs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/runtimes"
)

// A document is the input of the AWS CLI's --cli-input-json: its fields have the names of the SDK's structs, with a lower case first
// letter.

// decode reads a document into one of the SDK's inputs, and returns it as it was read. The value of a parameter becomes a text or a
// number, depending on the field; any other mismatch is an error.
func decode(raw []byte, into any) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var given any
	if err := decoder.Decode(&given); err != nil {
		return nil, err
	}
	fitted, err := fit(reflect.TypeOf(into).Elem(), given, "")
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(fitted)
	if err == nil {
		err = json.Unmarshal(data, into) // it ignores the case of names
	}
	document, _ := fitted.(map[string]any)
	return document, err
}

// fit converts a value to a type.
func fit(to reflect.Type, v any, path string) (any, error) {
	if to.Kind() == reflect.Pointer {
		return fit(to.Elem(), v, path)
	}
	switch x := v.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return fitMap(to, x, path)
	case []any:
		if to.Kind() != reflect.Slice {
			return nil, fmt.Errorf("%s must not be a list", path)
		}
		list := make([]any, len(x))
		for i, item := range x {
			var err error
			if list[i], err = fit(to.Elem(), item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return fitScalar(to, v, path)
}

func fitMap(to reflect.Type, fields map[string]any, path string) (any, error) {
	fitted := map[string]any{}
	for name, v := range fields {
		at := strings.TrimPrefix(path+"."+name, ".")
		var fieldType reflect.Type
		switch to.Kind() {
		case reflect.Map:
			fieldType = to.Elem()
		case reflect.Struct:
			field, ok := to.FieldByName(strings.ToUpper(name[:min(1, len(name))]) + name[min(1, len(name)):])
			if !ok || field.Type.Kind() == reflect.Interface || !field.IsExported() || field.Name == "ResultMetadata" {
				return nil, fmt.Errorf("there is no field %s", at)
			}
			fieldType = field.Type
		default:
			return nil, fmt.Errorf("%s must not be a mapping", path)
		}
		one, err := fit(fieldType, v, at)
		if err != nil {
			return nil, err
		}
		if one != nil {
			fitted[name] = one
		}
	}
	return fitted, nil
}

func fitScalar(to reflect.Type, v any, path string) (any, error) {
	text := fmt.Sprint(v)
	switch to.Kind() {
	case reflect.String:
		return text, nil
	case reflect.Bool:
		if b, err := strconv.ParseBool(text); err == nil {
			return b, nil
		}
	case reflect.Int32, reflect.Int64:
		if n, err := strconv.ParseInt(text, 10, to.Bits()); err == nil {
			return json.Number(strconv.FormatInt(n, 10)), nil
		}
	case reflect.Float32, reflect.Float64:
		if n, err := strconv.ParseFloat(text, to.Bits()); err == nil {
			return json.Number(fmt.Sprint(n)), nil // 5.0 becomes 5, as ECS returns it
		}
	}
	return nil, fmt.Errorf("%s cannot be %q", path, text)
}

// toDocument is one of the SDK's structs as a document; unset fields are omitted.
func toDocument(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return toDocument(v.Elem())
	case reflect.Struct:
		document := map[string]any{}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() || field.Type.Kind() == reflect.Interface {
				continue
			}
			if one := toDocument(v.Field(i)); one != nil {
				document[strings.ToLower(field.Name[:1])+field.Name[1:]] = one
			}
		}
		return document
	case reflect.Map:
		document := map[string]any{}
		for _, key := range v.MapKeys() {
			document[key.String()] = toDocument(v.MapIndex(key))
		}
		return document
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = toDocument(v.Index(i))
		}
		return list
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	}
	return json.Number(fmt.Sprint(v.Interface()))
}

// differences lists the declared fields that the live object does not have. Undeclared fields do not count. An explicit empty value
// equals an absent one, and the order of lists does not count, since it has no meaning in a service.
func differences(path string, declared, actual any) []runtimes.FieldChange {
	if same(declared, actual) {
		return nil
	}
	wanted, ok := declared.(map[string]any)
	if !ok {
		return []runtimes.FieldChange{{Path: path, Old: jsonText(actual), New: jsonText(declared)}}
	}
	live, _ := actual.(map[string]any)
	var all []runtimes.FieldChange
	for name, v := range wanted {
		all = append(all, differences(strings.TrimPrefix(path+"."+name, "."), v, live[name])...)
	}
	sort.Slice(all, func(a, b int) bool { return all[a].Path < all[b].Path })
	return all
}

// same reports whether the live value includes the declared one.
func same(declared, actual any) bool {
	switch want := declared.(type) {
	case map[string]any:
		live, ok := actual.(map[string]any)
		for name, v := range want {
			if !same(v, live[name]) {
				return false
			}
		}
		return ok || len(want) == 0 || actual == nil
	case []any:
		live, _ := actual.([]any)
		return sameList(want, live)
	}
	return scalar(declared) == scalar(actual)
}

// sameList finds for each declared item another live item that includes it.
func sameList(want, live []any) bool {
	if len(want) != len(live) {
		return false
	}
	taken := make([]bool, len(live))
	for _, w := range want {
		found := false
		for i, l := range live {
			if !taken[i] && same(w, l) {
				taken[i], found = true, true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// scalar is a value as text; zero, false and nothing are equal.
func scalar(v any) string {
	switch text := fmt.Sprint(v); text {
	case "<nil>", "0", "false":
		return ""
	default:
		return text
	}
}

func jsonText(v any) string {
	if v == nil {
		return ""
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
