package contracts

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Full is a value of a form with something in every field that can be written, as JSON: the same for the same type.
func Full(form any) (json.RawMessage, error) {
	v := reflect.New(typeOf(form))
	fill(v.Elem(), "value", nil)
	return marshal(v)
}

// Empty is what a form writes that says nothing.
func Empty(form any) (json.RawMessage, error) { return marshal(reflect.New(typeOf(form))) }

func typeOf(form any) reflect.Type {
	t := reflect.TypeOf(form)
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func marshal(v reflect.Value) (json.RawMessage, error) {
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return nil, fmt.Errorf("sample of %s: %w", v.Type(), err)
	}
	return data, nil
}

// aTime is the time in every sample.
var aTime = time.Date(2026, 11, 21, 3, 15, 0, 0, time.UTC)

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)

// fill puts something into a value and all that it consists of. A type within itself stays empty.
func fill(v reflect.Value, name string, within []reflect.Type) {
	for _, t := range within {
		if t == v.Type() {
			return
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		fillStruct(v, within)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, within)
	case reflect.Slice:
		fillSlice(v, name, within)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, "key", within)
		fill(value, name, within)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface:
		v.Set(reflect.ValueOf("any"))
	default:
		fillPlain(v, name)
	}
}

func fillStruct(v reflect.Value, within []reflect.Type) {
	if v.Type() == timeType {
		v.Set(reflect.ValueOf(aTime))
		return
	}
	for n := range v.NumField() {
		if field := v.Type().Field(n); field.IsExported() || field.Anonymous && field.Type.Kind() == reflect.Struct {
			fill(v.Field(n), strings.ToLower(field.Name), append(within[:len(within):len(within)], v.Type()))
		}
	}
}

func fillSlice(v reflect.Value, name string, within []reflect.Type) {
	switch {
	case v.Type() == rawType:
		v.SetBytes(json.RawMessage(`{"raw":true}`))
	case v.Type().Elem().Kind() == reflect.Uint8:
		v.SetBytes([]byte(name))
	default:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name, within)
	}
}

func fillPlain(v reflect.Value, name string) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(name)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(7)
	case v.CanUint():
		v.SetUint(7)
	case v.CanFloat():
		v.SetFloat(0.5)
	}
}
