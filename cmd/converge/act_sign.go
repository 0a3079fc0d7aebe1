package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
)

// signer keeps the tokens of the acts of one command.
type signer struct {
	mu     sync.Mutex
	tokens map[string]string // by nonce
}

const signTimeout = 5 * time.Minute // for the person to answer the issuer

// signed returns a payload with a token that the issuer of the login issued for this act alone (docs/protocol.md, "A token for one act"). The
// person opens the printed page. One request to several services is one act.
func (f *Factory) signed(ctx context.Context, api connection.API, workflowID, verb string, payload any) (any, error) {
	fields, err := withoutToken(payload)
	if err != nil {
		return nil, err
	}
	request, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	receiver := workflowID
	if application, service, ok := protocol.ParseServiceID(workflowID); ok {
		receiver = read.WorkflowID(ctx, api, connection.ServiceName{Application: application, Service: service})
		if fields["to"] != nil {
			receiver = protocol.ServiceID(application, "*")
		}
	}
	_, namespace := api.Temporal()
	nonce, err := protocol.Act{Namespace: namespace, Receiver: receiver, Verb: verb, Request: request}.Nonce()
	if err != nil {
		return nil, err
	}
	token, err := f.tokenFor(ctx, nonce, fields["to"] != nil)
	if err != nil {
		return nil, err
	}
	fields["token"], err = json.Marshal(token)
	return fields, err
}

// tokenFor returns a token for the act of a nonce. keep: it is the same for others that the act is for.
func (f *Factory) tokenFor(ctx context.Context, nonce string, keep bool) (string, error) {
	if command := f.signCommand(); command != "" {
		return f.tokenByCommand(ctx, command, nonce)
	}
	f.signedBy.mu.Lock()
	defer f.signedBy.mu.Unlock()
	if token := f.signedBy.tokens[nonce]; token != "" {
		return token, nil
	}
	ctx, cancel := withSignTimeout(ctx) // from here on: one page after the other is answered
	defer cancel()
	name, err := f.loginFile()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", errors.New("--sign needs the issuer that you log in at; expected before: converge login ISSUER")
	}
	var l login
	if err := json.Unmarshal(data, &l); err != nil {
		return "", fmt.Errorf("read your login: %w; delete it with: converge logout", err)
	}
	config, provider, err := l.config(ctx)
	if err != nil {
		return "", err
	}
	answer, err := (&loginOptions{f: f}).browserLogin(ctx, config, nonce)
	if err != nil {
		return "", fmt.Errorf("sign at %s: %w", l.Issuer, err)
	}
	id, err := l.acceptToken(ctx, provider, answer) // the login in the file stays as it is
	if err != nil {
		return "", err
	}
	if id.Nonce != nonce {
		return "", fmt.Errorf("sign at %s: the token is for something else", l.Issuer)
	}
	if keep {
		f.signedBy.tokens[nonce] = l.Token
	}
	return l.Token, nil
}

func withSignTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, signTimeout, fmt.Errorf("no answer within %s", signTimeout))
}

// signCommand is the command that requests tokens for acts, for callers without a browser; "": the issuer of the login signs in a browser.
func (f *Factory) signCommand() string { return f.Env("CONVERGE_SIGN_COMMAND") }

// signs reports whether each act gets a token that is issued for it alone. A token that the caller names comes before the command.
func (f *Factory) signs() bool { return f.sign || f.signCommand() != "" && f.usesLogin() }

const maxCommandToken = 64 << 10 // bytes; a worker takes 16 KiB

// tokenByCommand runs the command of CONVERGE_SIGN_COMMAND, which prints a token for the act that CONVERGE_ACT names.
func (f *Factory) tokenByCommand(ctx context.Context, command, nonce string) (string, error) {
	ctx, cancel := withSignTimeout(ctx)
	defer cancel()
	run := exec.CommandContext(ctx, "sh", "-c", command)
	run.Env = append(run.Environ(), "CONVERGE_ACT="+nonce)
	run.Stderr = f.Err
	run.WaitDelay = time.Second // what the shell has started may still hold its output
	out, err := run.Output()
	token := strings.TrimSpace(string(out))
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("CONVERGE_SIGN_COMMAND: %w", context.Cause(ctx))
	case err != nil:
		return "", fmt.Errorf("CONVERGE_SIGN_COMMAND: %w; its errors are above", err)
	case token == "" || len(out) > maxCommandToken || strings.Count(token, ".") != 2:
		return "", fmt.Errorf("CONVERGE_SIGN_COMMAND printed %d bytes that are no ID token; expected three parts with dots between them", len(out))
	}
	return token, nil
}
