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
	// fetchTimeout is the timeout of one request for a secret.
	fetchTimeout = 10 * time.Second
	// cacheTTL is how long a value is cached: after that a changed value is read.
	cacheTTL = 30 * time.Second
	// maxSecretSize is the limit of a secret in bytes, that of a Secret in Kubernetes.
	maxSecretSize = 1 << 20
)

// Store is an external store of secrets. Safe for concurrent use.
type Store interface {
	// Fetch returns the complete secret of a reference, without regard to Key. An error gives the reason in words that follow "…,
	// which", and contains no secret.
	Fetch(ctx context.Context, v entities.Value) ([]byte, error)
}

// Worker resolves the references of a worker: to its environment, and to the secrets that it may read in clusters and in AWS. The
// zero value allows nothing.
type Worker struct {
	Environment
	// External are the references that it reads for a configuration, in the form of ParseExternal.
	External ExternalPatterns
	// Kubernetes and AWS are the stores; nil: not available.
	Kubernetes, AWS Store
	// Captured finds the captured values of a service in a release channel, by name; nil: none are available.
	Captured func(ctx context.Context, application, channel, service string) (map[string]string, error)

	mu    sync.Mutex
	cache map[entities.Value]cachedSecret
}

type cachedSecret struct {
	text  string
	until time.Time
}

// Resolve implements Source.
func (w *Worker) Resolve(ctx context.Context, v entities.Value) (string, error) {
	store := w.Kubernetes
	switch {
	case v.AWSSecret != "":
		store = w.AWS
	case v.KubernetesSecret == "":
		return w.Environment.Resolve(ctx, v)
	}
	if strings.Contains(v.Namespace+v.KubernetesSecret, "/") {
		return "", fmt.Errorf("%s, which is not a valid name in a cluster", v.Reference())
	}
	if name := patternName(v); !w.External.allows(name) {
		return "", fmt.Errorf("%s, which this worker does not allow; to allow it, start the worker with --allow-secret %s", v.Reference(), name)
	}
	if store == nil {
		return "", fmt.Errorf("%s, which this worker cannot read", v.Reference())
	}
	return w.fetchCached(ctx, store, v)
}

// fetchCached is a cache of recent and pending requests: commands that run every few seconds cause only a few requests.
func (w *Worker) fetchCached(ctx context.Context, store Store, v entities.Value) (string, error) {
	now := time.Now()
	w.mu.Lock()
	known, ok := w.cache[v]
	w.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.text, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	raw, err := store.Fetch(ctx, v)
	if err == nil && len(raw) > maxSecretSize {
		err = fmt.Errorf("is longer than %d bytes", maxSecretSize)
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
	if w.cache == nil {
		w.cache = map[entities.Value]cachedSecret{}
	}
	for reference, entry := range w.cache {
		if now.After(entry.until) {
			delete(w.cache, reference)
		}
	}
	w.cache[v] = cachedSecret{text, now.Add(cacheTTL)}
	return text, nil
}

// fieldOf is a field of a JSON object: a text without its quotes, any other value as JSON. An error does not quote the object.
func fieldOf(raw []byte, key string) (string, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return "", errors.New("is not a JSON object, so it has no keys")
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

// ExternalPatterns are patterns of readable secrets: kubernetes:[CONTEXT/]NAMESPACE/NAME, aws:[REGION:]NAME or aws:ARN. A * at the end
// matches any rest.
type ExternalPatterns []string

// ParseExternal reads a list in the form of flags and CONVERGE_ALLOW_SECRET.
func ParseExternal(list ...string) (ExternalPatterns, error) {
	var all ExternalPatterns
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
		return nil, fmt.Errorf("invalid pattern %q; expected kubernetes:NAMESPACE/NAME, kubernetes:CONTEXT/NAMESPACE/NAME, aws:NAME, aws:REGION:NAME or aws:ARN, optionally with * at the end", pattern)
	}
	return all, nil
}

// patternName is a reference in the form of patterns. An omitted context or region is the worker's own, and no other.
func patternName(v entities.Value) string {
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

// allows reports whether a pattern matches a name. A pattern matches only names with the same number of parts: shop/* does not match
// a context named shop.
func (e ExternalPatterns) allows(name string) bool {
	for _, pattern := range e {
		aws := strings.HasPrefix(pattern, "aws:")
		if entities.MatchesName(pattern, name) &&
			(aws && strings.Count(pattern, ":") == strings.Count(name, ":") || !aws && strings.Count(pattern, "/") == strings.Count(name, "/")) {
			return true
		}
	}
	return false
}
