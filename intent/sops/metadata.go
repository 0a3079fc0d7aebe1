package sops

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// rule reports whether the value at a path is encrypted.
type rule func(path []string) bool

// otherKeyTypes lists the key types other than age. They need a network request or a program.
var otherKeyTypes = []string{"kms", "gcp_kms", "hckms", "azure_kv", "hc_vault", "pgp"}

var rules = map[string]func(text string) (rule, error){
	"unencrypted_suffix": func(text string) (rule, error) { return negate(suffixed(text)), nil },
	"encrypted_suffix":   func(text string) (rule, error) { return suffixed(text), nil },
	"unencrypted_regex": func(text string) (rule, error) {
		r, err := matching(text)
		return negate(r), err
	},
	"encrypted_regex": matching,
}

func suffixed(text string) rule {
	return func(path []string) bool {
		return slices.ContainsFunc(path, func(key string) bool { return strings.HasSuffix(key, text) })
	}
}

func matching(text string) (rule, error) {
	re, err := regexp.Compile(text)
	return func(path []string) bool { return slices.ContainsFunc(path, re.MatchString) }, err
}

func negate(r rule) rule { return func(path []string) bool { return !r(path) } }

// metadata reads the SOPS metadata of the file, and returns the rule for encrypted values.
func (f *File) metadata(meta *yaml.Node) (rule, error) {
	d := &strict.Decoder{}
	v, ok := d.DecodeAny(meta)
	fields, is := v.(map[string]any)
	if !ok || !is || len(d.Problems) > 0 {
		return nil, errors.New("its SOPS metadata cannot be read")
	}
	if err := f.keys(fields); err != nil {
		return nil, err
	}
	if err := f.integrity(fields); err != nil {
		return nil, err
	}
	return ruleOf(fields)
}

// keys reads the recipients of the file.
func (f *File) keys(fields map[string]any) error {
	var others []string
	for _, kind := range otherKeyTypes {
		if list, _ := fields[kind].([]any); len(list) > 0 {
			others = append(others, kind)
		}
	}
	if groups, _ := fields["key_groups"].([]any); len(groups) > 0 {
		return errors.New("its key is split among groups of keys (key_groups), which is not supported; expected one group with an age recipient in it")
	}
	list, _ := fields["age"].([]any)
	if len(list) > maxRecipients {
		return fmt.Errorf("it has %d recipients; expected at most %d", len(list), maxRecipients)
	}
	for _, each := range list {
		entry, _ := each.(map[string]any)
		name, _ := entry["recipient"].(string)
		enc, _ := entry["enc"].(string)
		if !recipientRE.MatchString(name) || enc == "" {
			return errors.New("one of its age recipients is invalid")
		}
		f.recipients = append(f.recipients, recipient{name, enc})
	}
	switch {
	case len(f.recipients) > 0:
		return nil
	case len(others) > 0:
		return fmt.Errorf("it is encrypted for %s only, and a worker has age identities; expected an age recipient among its keys", strings.Join(others, " and "))
	}
	return errors.New("it has no recipients; expected an age recipient")
}

var recipientRE = regexp.MustCompile(`^(age1[a-z0-9]+|ssh-(rsa|ed25519) [A-Za-z0-9+/= @._-]+)$`)

// integrity reads the MAC and its scope.
func (f *File) integrity(fields map[string]any) (err error) {
	for _, name := range strict.Keys(fields) {
		_, chooses := rules[name]
		switch {
		case chooses, slices.Contains(otherKeyTypes, name):
		case !slices.Contains([]string{"age", "key_groups", "shamir_threshold", "lastmodified", "mac", "mac_only_encrypted", "version"}, name):
			return fmt.Errorf("its SOPS metadata has %q, which is not supported", strict.Clip(name))
		}
	}
	text, _ := fields["mac"].(string)
	if text == "" {
		return errors.New("it has no MAC")
	}
	if f.mac, err = unpack(text); err != nil || f.mac.kind != "str" {
		return errors.New("its MAC is not in the format of SOPS")
	}
	text, _ = fields["lastmodified"].(string)
	modified, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return errors.New("its SOPS metadata has no lastmodified with a time")
	}
	f.modified = modified.Format(time.RFC3339)
	f.onlySealed, err = parseBool(fields["mac_only_encrypted"])
	return err
}

func parseBool(v any) (bool, error) {
	switch x := v.(type) {
	case nil:
		return false, nil
	case bool:
		return x, nil
	case string:
		if b, err := strconv.ParseBool(x); err == nil {
			return b, nil
		}
	}
	return false, errors.New("mac_only_encrypted in its SOPS metadata is neither true nor false")
}

// ruleOf returns which values are encrypted. SOPS has one rule per file.
func ruleOf(fields map[string]any) (rule, error) {
	chosen := negate(suffixed("_unencrypted"))
	given := 0
	for _, name := range strict.Keys(rules) {
		v, has := fields[name]
		text, ok := v.(string)
		switch {
		case !has || v == nil || ok && text == "":
			continue
		case !ok:
			return nil, fmt.Errorf("%s in its SOPS metadata is not text", name)
		}
		var err error
		if chosen, err = rules[name](text); err != nil {
			return nil, fmt.Errorf("%s in its SOPS metadata is not a regular expression", name)
		}
		given++
	}
	if given > 1 {
		return nil, errors.New("its SOPS metadata has several encryption rules; expected one")
	}
	return chosen, nil
}
