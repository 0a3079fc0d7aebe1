package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/converge-engine/converge/runtimes"
)

// This file says why a credential plugin fails. client-go passes what the plugin writes to stderr to the worker's stderr, and reports the exit
// code alone. So a plugin that failed runs once more, and what it writes becomes part of the error.

const (
	// pluginTimeout is how long the plugin may take to say why it fails.
	pluginTimeout = 10 * time.Second
	// pluginRepeat is how long its answer is used: during an outage the server is probed every few seconds.
	pluginRepeat = 30 * time.Second
	// maxPluginText is how much of its stderr is reported, in bytes.
	maxPluginText = 600
)

// pluginError is the failure of a credential plugin, with what it wrote to stderr.
type pluginError struct {
	command, stderr string
	err             error
}

func (e *pluginError) Error() string {
	if e.stderr == "" {
		return fmt.Sprintf("the credential plugin %s failed, and wrote nothing to stderr: %s", e.command, e.err)
	}
	return fmt.Sprintf("the credential plugin %s failed: %s", e.command, e.stderr)
}

func (e *pluginError) Unwrap() error { return e.err }

// plugin is the credential plugin of a connection; nil if it has none.
type plugin struct {
	config *clientcmdapi.ExecConfig
	server string

	mu      sync.Mutex
	stderr  string
	askedAt time.Time
}

func pluginOf(config *rest.Config) *plugin {
	if config.ExecProvider == nil {
		return nil
	}
	return &plugin{config: config.ExecProvider.DeepCopy(), server: config.Host}
}

// credentialedKey is the key of a request's context for an *atomic.Bool: whether it got its credentials.
type credentialedKey struct{}

// credentialed wraps the transport that a request reaches once client-go has the credentials for it.
type credentialed struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c credentialed) RoundTrip(req *http.Request) (*http.Response, error) {
	if reached, ok := req.Context().Value(credentialedKey{}).(*atomic.Bool); ok {
		reached.Store(true)
	}
	return c.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper gives client-go access to the transport underneath.
func (c credentialed) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

// send sends a request. If the plugin did not deliver its credentials, the error is a *pluginError: client-go has no type for that, so
// this follows from how far the request got.
func (p *plugin) send(trip http.RoundTripper, req *http.Request) (*http.Response, error) {
	if p == nil {
		return trip.RoundTrip(req)
	}
	reached := &atomic.Bool{}
	resp, err := trip.RoundTrip(req.WithContext(context.WithValue(req.Context(), credentialedKey{}, reached)))
	if err != nil && !reached.Load() && req.Context().Err() == nil {
		err = &pluginError{command: p.config.Command, stderr: p.ask(req.Context()), err: err}
	}
	return resp, err
}

// ask runs the plugin and returns its stderr on one line, without credentials and control characters.
func (p *plugin) ask(ctx context.Context) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.askedAt) < pluginRepeat {
		return p.stderr
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pluginTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, p.config.Command, p.config.Args...) //nolint:gosec // the worker's own kubeconfig names it
	command.Stdout, command.Stderr, command.WaitDelay = &stdout, &stderr, time.Second
	command.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+p.info())
	for _, each := range p.config.Env {
		command.Env = append(command.Env, each.Name+"="+each.Value)
	}
	err := command.Run()
	text := withoutCredentials(stderr.String(), command.Env, stdout.Bytes())
	text = strings.Join(strings.Fields(escapes.ReplaceAllString(text, "")), " ")
	if text == "" && err != nil {
		text = err.Error() // it cannot be executed, or took too long
	}
	p.stderr, p.askedAt = runtimes.ClipMessage(text, maxPluginText), time.Now()
	return p.stderr
}

// info is what a plugin learns of the cluster, without its certificate.
func (p *plugin) info() string {
	spec := map[string]any{"interactive": false}
	if p.config.ProvideClusterInfo {
		spec["cluster"] = map[string]any{"server": p.server}
	}
	text, _ := json.Marshal(map[string]any{"kind": "ExecCredential", "apiVersion": p.config.APIVersion, "spec": spec}) // strings only
	return string(text)
}

var (
	secretName = regexp.MustCompile(`(?i)SECRET|TOKEN|PASSW|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY`)
	// bearers are credentials that are recognised without knowing them: what follows the scheme of an Authorization header, and a JWT.
	bearers = regexp.MustCompile(`(?i)(bearer|basic)\s+[A-Za-z0-9+/_=.~-]{8,}|eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`)
	escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]") // colours of a terminal
)

// withoutCredentials is what a plugin wrote without the credentials that it may contain: those that it delivered, and the values of variables
// that have the name of a secret.
func withoutCredentials(text string, env []string, delivered []byte) string {
	var hidden []string
	for _, each := range env {
		if name, value, _ := strings.Cut(each, "="); secretName.MatchString(name) {
			hidden = append(hidden, value)
		}
	}
	var credential struct {
		Status struct{ Token, ClientKeyData string }
	}
	if json.Unmarshal(delivered, &credential) == nil {
		hidden = append(hidden, credential.Status.Token, credential.Status.ClientKeyData)
	}
	slices.SortFunc(hidden, func(x, y string) int { return len(y) - len(x) })
	for _, value := range hidden {
		if len(value) >= minRedacted {
			text = strings.ReplaceAll(text, value, "***")
		}
	}
	return bearers.ReplaceAllString(text, "***")
}

// isTokenFailure reports whether a request was not sent because the worker cannot sign a token for EKS.
func isTokenFailure(err error) bool {
	var failed *eksTokenError
	return errors.As(err, &failed)
}

// isPluginFailure reports whether a request was not sent because the credential plugin failed.
func isPluginFailure(err error) bool {
	var failed *pluginError
	return errors.As(err, &failed)
}
