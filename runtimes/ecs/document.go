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

// A document is what the AWS CLI takes as --cli-input-json: fields as AWS writes them, which are those of the SDK's
// structs with a small first letter.

// decode reads a document into one of the SDK's inputs, and returns it as it was read. What a parameter stands for becomes
// a text or a number as the field wants it; anything else that does not fit is an error.
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
		err = json.Unmarshal(data, into) // names are matched without regard to case
	}
	document, _ := fitted.(map[string]any)
	return document, err
}

// fit turns a value into what a type takes.
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
			return nil, fmt.Errorf("%s is a list, which it cannot be", path)
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

func fitMap(to reflect.Type, given map[string]any, path string) (any, error) {
	fitted := map[string]any{}
	for name, v := range given {
		at := strings.TrimPrefix(path+"."+name, ".")
		var into reflect.Type
		switch to.Kind() {
		case reflect.Map:
			into = to.Elem()
		case reflect.Struct:
			field, ok := to.FieldByName(strings.ToUpper(name[:min(1, len(name))]) + name[min(1, len(name)):])
			if !ok || field.Type.Kind() == reflect.Interface || !field.IsExported() || field.Name == "ResultMetadata" {
				return nil, fmt.Errorf("there is no field %s", at)
			}
			into = field.Type
		default:
			return nil, fmt.Errorf("%s is a mapping, which it cannot be", path)
		}
		one, err := fit(into, v, at)
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
			return json.Number(fmt.Sprint(n)), nil // 5.0 is 5, as it is read back
		}
	}
	return nil, fmt.Errorf("%s cannot be %q", path, text)
}

// plain is one of the SDK's structs as a document; what is not set is left out.
func plain(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Struct:
		document := map[string]any{}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() || field.Type.Kind() == reflect.Interface {
				continue
			}
			if one := plain(v.Field(i)); one != nil {
				document[strings.ToLower(field.Name[:1])+field.Name[1:]] = one
			}
		}
		return document
	case reflect.Map:
		document := map[string]any{}
		for _, key := range v.MapKeys() {
			document[key.String()] = plain(v.MapIndex(key))
		}
		return document
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i))
		}
		return list
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return v.Bool()
	}
	return json.Number(fmt.Sprint(v.Interface()))
}

// differences lists where what is there is not what is declared. What is not declared does not count, nor does whether
// nothing is written as such or left out, nor the order of lists, whose order means nothing in a service.
func differences(path string, declared, there any) []runtimes.FieldChange {
	if same(declared, there) {
		return nil
	}
	wanted, ok := declared.(map[string]any)
	if !ok {
		return []runtimes.FieldChange{{Path: path, Old: shown(there), New: shown(declared)}}
	}
	live, _ := there.(map[string]any)
	var all []runtimes.FieldChange
	for name, v := range wanted {
		all = append(all, differences(strings.TrimPrefix(path+"."+name, "."), v, live[name])...)
	}
	sort.Slice(all, func(a, b int) bool { return all[a].Path < all[b].Path })
	return all
}

// same reports whether what is there is at least what is declared.
func same(declared, there any) bool {
	switch want := declared.(type) {
	case map[string]any:
		live, ok := there.(map[string]any)
		for name, v := range want {
			if !same(v, live[name]) {
				return false
			}
		}
		return ok || len(want) == 0 || there == nil
	case []any:
		live, _ := there.([]any)
		return sameList(want, live)
	}
	return scalar(declared) == scalar(there)
}

// sameList finds for each item another one that is at least that.
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

// scalar is a value as text; zero, false and nothing are one.
func scalar(v any) string {
	switch text := fmt.Sprint(v); text {
	case "<nil>", "0", "false":
		return ""
	default:
		return text
	}
}

func shown(v any) string {
	if v == nil {
		return ""
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
