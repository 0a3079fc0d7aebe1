package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// secretRef is a reference to a secret: one of the first four fields, and the fields that belong to it.
type secretRef struct {
	WorkerEnv        WorkerEnvName `json:"workerEnv,omitempty"`
	KubernetesSecret secretPart    `json:"kubernetesSecret,omitempty"`
	AWSSecret        secretPart    `json:"awsSecret,omitempty"`
	Captured         Name          `json:"captured,omitempty"`
	Namespace        secretPart    `json:"namespace,omitempty"`
	Context          secretPart    `json:"context,omitempty"`
	Region           secretPart    `json:"region,omitempty"`
	VersionStage     secretPart    `json:"versionStage,omitempty"`
	Key              secretPart    `json:"key,omitempty"`
}

// secretPart is a part of a secret's location.
type secretPart string

// secretPartPattern allows names, ARNs and keys, but no text with another meaning in a command line or a URL.
const secretPartPattern = `^[A-Za-z0-9][A-Za-z0-9/_+=.@:-]{0,511}$`

var secretPartRE = strict.Pattern(secretPartPattern)

// Pattern returns the pattern for the JSON schema.
func (secretPart) Pattern() string { return secretPartPattern }

// Check rejects invalid parts of a secret's location.
func (p secretPart) Check() *Fault {
	return strict.FaultUnless(secretPartRE().MatchString(string(p)) && !strings.Contains(string(p), ".."), "bad-name", "invalid name %q of a secret or of a part of it", string(p),
		"letters, digits and /_+=.@:-, a letter or digit first")
}

// value returns the reference in the form for a worker.
func (r secretRef) value() entities.Value {
	return entities.Value{
		WorkerEnv: string(r.WorkerEnv), KubernetesSecret: string(r.KubernetesSecret), Namespace: string(r.Namespace), Context: string(r.Context),
		AWSSecret: string(r.AWSSecret), Region: string(r.Region), VersionStage: string(r.VersionStage), Key: string(r.Key),
		Captured: string(r.Captured),
	}
}

// SecretForms are the kinds of references: the identifying field, the required fields, and the optional fields.
var SecretForms = [...]struct {
	Field          string
	Needs, MayHave []string
}{
	{Field: "workerEnv"},
	{Field: "kubernetesSecret", Needs: []string{"namespace", "key"}, MayHave: []string{"context"}},
	{Field: "awsSecret", MayHave: []string{"key", "region", "versionStage"}},
	{Field: "captured", Needs: []string{"key"}},
}

// SecretFields describe the fields of references.
var SecretFields = map[string]string{
	"workerEnv":        "The name of an environment variable of the worker that holds the secret.",
	"kubernetesSecret": "The name of a Secret of the worker's cluster.",
	"namespace":        "The namespace of the Secret.",
	"context":          "The cluster of the Secret: a context of the worker's kubeconfig. When not given, the current one, or the cluster that the worker runs in.",
	"awsSecret":        "The name or ARN of a secret of AWS Secrets Manager.",
	"region":           "The region of the secret. When not given, the worker's.",
	"versionStage":     "The version of the secret. When not given, AWSCURRENT.",
	"key":              "The value: a key of a Secret, a field of a JSON object, or the name of a captured secret.",
	"captured":         "The service of the application whose setup captured the secret, in the same release channel.",
}

// SecretPattern returns the pattern of a field of a reference for the JSON schema.
func SecretPattern(field string) string {
	switch field {
	case "workerEnv":
		return envPattern
	case "captured":
		return namePattern
	}
	return secretPartPattern
}

const secretWanted = "{workerEnv: NAME}, {kubernetesSecret: NAME, namespace: NAMESPACE, key: KEY}, {awsSecret: NAME} or {captured: SERVICE, key: NAME}"

// checkSecret returns which fields of a reference are missing or not allowed, or nil.
func checkSecret(v entities.Value) *Fault {
	fields := map[string]string{}
	raw, err := json.Marshal(v)
	if err != nil || json.Unmarshal(raw, &fields) != nil {
		return &Fault{Code: "bad-value", Message: "invalid reference to a secret", Expected: secretWanted}
	}
	for _, form := range SecretForms {
		if fields[form.Field] == "" {
			continue
		}
		for _, need := range form.Needs {
			if fields[need] == "" {
				return &Fault{Code: "missing-field", Message: fmt.Sprintf("%s needs its %s", form.Field, need), Expected: secretWanted}
			}
		}
		for name := range fields {
			if name != form.Field && !slices.Contains(form.Needs, name) && !slices.Contains(form.MayHave, name) {
				return &Fault{Code: "bad-value", Message: form.Field + " has fields that do not belong to it", Expected: secretWanted}
			}
		}
		return nil
	}
	return &Fault{Code: "missing-field", Message: "this names no secret", Expected: secretWanted}
}

func decodeSecret(d *strict.Decoder, path string, node *yaml.Node) entities.Value {
	var ref secretRef
	before := len(d.Problems)
	d.Value(path, node, &ref)
	if len(d.Problems) > before {
		return entities.Value{}
	}
	if fault := checkSecret(ref.value()); fault != nil {
		d.Fail(path, node, *fault)
		return entities.Value{}
	}
	return ref.value()
}

// SecretRefOf decodes a reference from JSON, the form in which a release sets one.
func SecretRefOf(fields map[string]any) (v entities.Value, ok bool) {
	for name, given := range fields {
		text, is := given.(string)
		valid := name != "value" && secretPart(text).Check() == nil
		switch name {
		case "workerEnv":
			valid = WorkerEnvName(text).Check() == nil
		case "captured":
			valid = Name(text).Check() == nil
		}
		if !is || !valid {
			return v, false
		}
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return v, false
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return v, decoder.Decode(&v) == nil && checkSecret(v) == nil
}
