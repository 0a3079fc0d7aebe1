package publish

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// announce notifies the Application workflow, starts it for the first publication, and makes the runtimes current for other applications
// once the publication is accepted.
func (p *publication) announce(ctx context.Context) error {
	request := p.request()
	var payload any = request
	if p.options.Sign != nil && p.takesToken() {
		signed, err := p.options.Sign(ctx, protocol.ApplicationID(p.application), protocol.Publish, request)
		if err != nil {
			return err
		}
		payload = signed
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := p.send(ctx, request.RequestID, payload)
	for err != nil && lacksAttributes(err) && p.haveAttributes(ctx) && sleep(ctx, attributesDelay) {
		answer, err = p.send(ctx, request.RequestID, payload)
	}
	if err != nil {
		return answerError(p.options.Client, err, "announce the incarnation")
	}
	p.result.Incarnation, p.result.Unchanged, p.result.Pinned = answer.Incarnation, answer.Unchanged, answer.Pinned
	if err := p.store.PutDirectory(ctx, p.application, p.dir); err != nil {
		return err
	}
	for _, d := range p.compiled.Runtimes {
		if _, err := p.store.PublishRuntime(ctx, d); err != nil {
			return err
		}
	}
	p.awaitNotified(ctx)
	if len(p.result.Started) > 0 {
		p.awaitStarted(ctx)
	}
	return nil
}

// send sends the request to the Application workflow, and starts the workflow if it does not run.
func (p *publication) send(ctx context.Context, id string, payload any) (answer protocol.PublishAnswer, err error) {
	c := p.options.Client
	handle, err := c.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: c.NewWithStartWorkflowOperation(p.start(), protocol.ApplicationWorkflow,
			protocol.ApplicationInput{Application: p.application, StartMode: protocol.StartMode{Adopt: true}}),
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateID: id, UpdateName: protocol.Publish, Args: []any{payload}, WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	return answer, err
}

// attributesDelay is the time between attempts while a server does not know the search attributes yet that a worker has added.
const attributesDelay = time.Second

// haveAttributes reports whether the namespace has the search attributes. Servers know new ones a few seconds later.
func (p *publication) haveAttributes(ctx context.Context) bool {
	if p.options.Namespace == "" {
		return false
	}
	have, err := p.options.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: p.options.Namespace})
	_, found := have.GetCustomAttributes()[protocol.AttrApplication]
	return err == nil && found
}

// sleep reports whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// awaitNotified waits a while until all services are notified, so that the next step (a release, say) finds them there. Thousands take
// longer than a caller would wait; their notification continues. A query that takes too long, because the worker is busy, is repeated.
func (p *publication) awaitNotified(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		now, err := Status(ctx, p.options.Client, p.application)
		p.result.Notified = err == nil && (now.NotifiedOf == p.manifest.Digest() || now.Newest != p.result.Incarnation || now.Pin != nil)
		if p.result.Notified || err != nil && !isSlow(err) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// isSlow reports whether a query took too long, or failed with the workflow task that ran at the same time.
func isSlow(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*serviceerror.DeadlineExceeded)) || errors.As(err, new(*serviceerror.Unavailable)) ||
		errors.As(err, new(*serviceerror.ResourceExhausted)) || errors.As(err, new(*serviceerror.WorkflowNotReady))
}

// takesToken reports whether the receiver can verify a token: for the first publication the rules of the installation define its issuer, if there is
// one yet.
func (p *publication) takesToken() bool {
	if p.before.Newest != 0 {
		return true
	}
	identity, _ := p.rules.FirstPublication(p.application, protocol.Publish)
	return identity != nil
}

func (p *publication) request() protocol.PublishRequest {
	token := p.options.Token
	if !p.takesToken() {
		token = ""
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails (crypto/rand)
	return protocol.PublishRequest{
		RequestMeta: protocol.RequestMeta{By: p.options.By, RequestID: hex.EncodeToString(id), Token: token},
		Hash:        p.result.Hash, Manifest: p.manifest.Digest(), Services: len(p.specs), Store: p.store.URL(),
		Origin: p.origin, Causes: p.options.Causes, Commits: p.commits, After: p.before.Newest, TakeOver: p.options.TakeOver,
		Missing: p.started, Runtimes: p.result.Runtimes,
	}
}

func (p *publication) start() client.StartWorkflowOptions {
	attribute := temporal.NewSearchAttributeKeyKeyword(protocol.AttrApplication)
	return client.StartWorkflowOptions{
		ID: protocol.ApplicationID(p.application), TaskQueue: protocol.TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            p.application,
		StaticDetails: fmt.Sprintf("The incarnations of %s, and which services know them.\n\n`converge config list %s` · `converge status %s`",
			p.application, p.application, p.application) + entities.BoardMarkdown(entities.BoardPage(p.rules.Board, "applications", p.application)),
		TypedSearchAttributes: temporal.NewSearchAttributes(attribute.ValueSet(p.application)),
	}
}

// lacksAttributes reports that the namespace does not have the search attributes of Converge, which a worker adds when it starts.
func lacksAttributes(err error) bool {
	return errors.As(err, new(*serviceerror.InvalidArgument)) && strings.Contains(err.Error(), protocol.AttrApplication)
}

// answerError explains the error of a call.
func answerError(c client.Client, err error, doing string) error {
	var application *temporal.ApplicationError
	var deadline *serviceerror.DeadlineExceeded
	switch {
	case errors.As(err, &application) && application.Type() == protocol.ErrRefused:
		return fmt.Errorf("%w: %s", ErrRefused, application.Message())
	case errors.As(err, &application):
		return errors.New(application.Message())
	case errors.As(err, &deadline), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w; %s", doing, connection.ErrNoWorker, connection.NextWithoutAnswer(c))
	case lacksAttributes(err):
		return fmt.Errorf("%s: the namespace lacks the search attributes of Converge (%w): no worker has started in it, or the database of Temporal was replaced since; "+
			"start one, which adds them, and try again a few seconds later: converge worker, or converge worker --take-over if the namespace of its store is gone", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
