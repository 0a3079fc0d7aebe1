package secret

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
)

const (
	// fetchTimeout bounds one request for a secret.
	fetchTimeout = 10 * time.Second
	// fetched is how long a value is used without asking again: a changed one is had by then.
	fetched = 30 * time.Second
	// longest is how many bytes of a secret are taken, as many as a Secret has.
	longest = 1 << 20
)

// Store is somewhere else that secrets are kept. Safe for concurrent use.
type Store interface {
	// Fetch returns what a reference names, all of it but for Key. An error says why in words that follow "…, which", and
	// holds no secret.
	Fetch(ctx context.Context, v entities.Value) ([]byte, error)
}

// Worker is what references stand for in a worker: its environment, and what it may read in clusters and in AWS. The zero
// value allows nothing.
type Worker struct {
	Environment
	// Elsewhere are those references that it reads for a configuration, as ParseElsewhere has them.
	Elsewhere Elsewhere
	// Kubernetes and AWS are asked for them; nil: they cannot be.
	Kubernetes, AWS Store
	// Captured finds what was captured of a service in a release channel, by name; nil: nothing is to be had.
	Captured func(ctx context.Context, application, channel, service string) (map[string]string, error)

	mu   sync.Mutex
	have map[entities.Value]fetchedText
}

type fetchedText struct {
	text  string
	until time.Time
}

// Resolve implements Source.
func (w *Worker) Resolve(ctx context.Context, v entities.Value) (string, error) {
	from := w.Kubernetes
	switch {
	case v.AWSSecret != "":
		from = w.AWS
	case v.KubernetesSecret == "":
		return w.Environment.Resolve(ctx, v)
	}
	if strings.Contains(v.Namespace+v.KubernetesSecret, "/") {
		return "", fmt.Errorf("%s, which is nothing that a cluster has", v.Reference())
	}
	if name := nameOf(v); !w.Elsewhere.allows(name) {
		return "", fmt.Errorf("%s, which this worker lets nobody have; start it with --allow-secret %s if it should", v.Reference(), name)
	}
	if from == nil {
		return "", fmt.Errorf("%s, which this worker cannot ask for", v.Reference())
	}
	return w.lately(ctx, from, v)
}

// lately is what was fetched a moment ago, or is now: commands that look every few seconds ask only now and then.
func (w *Worker) lately(ctx context.Context, from Store, v entities.Value) (string, error) {
	now := time.Now()
	w.mu.Lock()
	known, ok := w.have[v]
	w.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.text, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	raw, err := from.Fetch(ctx, v)
	if err == nil && len(raw) > longest {
		err = fmt.Errorf("is longer than %d bytes", longest)
	}
	text := string(raw)
	if err == nil && v.AWSSecret != "" && v.Key != "" {
		text, err = fieldOf(raw, v.Key)
	}
	if err != nil {
		return "", fmt.Errorf("%s, which %w", v.Reference(), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.have == nil {
		w.have = map[entities.Value]fetchedText{}
	}
	for other, have := range w.have {
		if now.After(have.until) {
			delete(w.have, other)
		}
	}
	w.have[v] = fetchedText{text, now.Add(fetched)}
	return text, nil
}

// fieldOf is a field of a JSON object: text as it is, anything else as JSON has it. What is wrong is said without the object.
func fieldOf(raw []byte, key string) (string, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return "", errors.New("is no JSON object, so it has no key")
	}
	field, ok := fields[key]
	if !ok {
		return "", errors.New("has no such key")
	}
	var text string
	if json.Unmarshal(field, &text) == nil {
		return text, nil
	}
	return string(field), nil
}

// Elsewhere are patterns of what may be read: kubernetes:[CONTEXT/]NAMESPACE/NAME, aws:[REGION:]NAME or aws:ARN, each with *
// behind it for all that begin so.
type Elsewhere []string

// ParseElsewhere reads a list as flags and CONVERGE_ALLOW_SECRET have it.
func ParseElsewhere(list ...string) (Elsewhere, error) {
	var all Elsewhere
	for _, pattern := range strings.Split(strings.Join(list, ","), ",") {
		pattern = strings.TrimSpace(pattern)
		kind, name, _ := strings.Cut(pattern, ":")
		plain := strings.TrimSuffix(name, "*")
		switch {
		case pattern == "":
			continue
		case strings.Contains(plain, "*") || kind != "kubernetes" && kind != "aws" || name == "":
		case kind == "kubernetes" && (!strings.Contains(plain, "/") || strings.HasPrefix(plain, "/")): // at least a namespace
		default:
			all = append(all, pattern)
			continue
		}
		return nil, fmt.Errorf("%q is none of kubernetes:NAMESPACE/NAME, kubernetes:CONTEXT/NAMESPACE/NAME, aws:NAME, aws:REGION:NAME and aws:ARN, with or without * behind it", pattern)
	}
	return all, nil
}

// nameOf is a reference as patterns mean it. What is not said, a context or a region, is the worker's own, and no other.
func nameOf(v entities.Value) string {
	if v.AWSSecret != "" {
		region := ""
		if v.Region != "" {
			region = v.Region + ":"
		}
		return "aws:" + region + v.AWSSecret
	}
	context := ""
	if v.Context != "" {
		context = v.Context + "/"
	}
	return "kubernetes:" + context + v.Namespace + "/" + v.KubernetesSecret
}

// allows tells whether a name is meant. A pattern means names of as many parts as it has: shop/* means no context called shop.
func (e Elsewhere) allows(name string) bool {
	for _, pattern := range e {
		aws := strings.HasPrefix(pattern, "aws:")
		if entities.MatchesName(pattern, name) &&
			(aws && strings.Count(pattern, ":") == strings.Count(name, ":") || !aws && strings.Count(pattern, "/") == strings.Count(name, "/")) {
			return true
		}
	}
	return false
}
