package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// problem is why an object could not be applied, on one line: the action, the server's message, and the advice.
type problem struct {
	action, reason, hint string
	err                  error // of the server; may be nil
	objectFailed         bool  // an object that the apply waited for has failed
}

func (p *problem) Error() string {
	text := p.action + ": " + strings.Join(strings.Fields(p.reason), " ")
	if p.hint != "" {
		text += " (" + p.hint + ")"
	}
	return text
}

func (p *problem) Unwrap() error { return p.err }

// mergeProblems merges the same refusal of several objects.
func mergeProblems(all []error) []error {
	var distinct []error
	merged := map[string]*problem{}
	more := map[string]int{}
	for _, err := range all {
		var p *problem
		if !errors.As(err, &p) {
			distinct = append(distinct, err)
			continue
		}
		reason := p.reason + "\n" + p.hint
		if merged[reason] == nil {
			first := *p
			merged[reason] = &first
			distinct = append(distinct, &first)
			continue
		}
		more[reason]++
	}
	for reason, p := range merged {
		if n := more[reason]; n > 0 {
			p.action += fmt.Sprintf(" and %d more", n)
		}
	}
	return distinct
}

// explain says why a call to the server failed, in the server's words, with a hint, and whether a retry can help. An error in the
// object itself is permanent. An error in its environment (permissions, quotas, unavailable webhooks, kinds that do not exist yet)
// is not. The error of an ended ctx stays as it is.
func explain(ctx context.Context, action string, err error) error {
	var known *problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return &problem{action: action, reason: "interrupted: " + context.Cause(ctx).Error(), err: context.Cause(ctx)}
	}
	p := &problem{action: action, reason: shortMessage(err), err: err}
	for _, kind := range failures() {
		if kind.matches(err) {
			p.hint = kind.hint
			if kind.hintOf != nil {
				p.hint = kind.hintOf(err)
			}
			if kind.permanent {
				return runtimes.Permanent(p)
			}
			break
		}
	}
	return p
}

// failure is one way in which the server, or the connection to it, fails.
type failure struct {
	matches   func(error) bool
	hint      string
	hintOf    func(error) string // instead of hint
	permanent bool
}

// failures are in order: the first match counts.
func failures() []failure {
	return []failure{
		{matches: meta.IsNoMatchError, hint: "the cluster does not serve this kind: is its CustomResourceDefinition installed?"},
		{matches: apierrors.IsUnauthorized, hint: "the credentials are not accepted: has a token expired? The kubeconfig is read again at the next attempt"},
		{matches: isImmutable, permanent: true, hint: "set the annotation " + AnnotationRecreate + `: "true" to have it deleted and recreated`},
		{matches: containsAny("failed calling webhook"), hintOf: func(err error) string {
			return "the webhook " + quoted(err, `failed calling webhook "([^"]+)"`) + " does not answer: repair or remove it before objects that it validates can change"
		}},
		{matches: containsAny("does not support dry run"), hint: "the webhook has to declare sideEffects None"},
		{matches: isDenial, permanent: true, hintOf: func(err error) string {
			return "the admission webhook " + quoted(err, `admission webhook "([^"]+)"`) + " does not allow it: change the object, or that policy"
		}},
		{matches: isTooLarge, permanent: true, hint: "the object is larger than a cluster stores (about 1.5 MB; a ConfigMap or Secret 1 MiB, annotations 256 KiB): split it, or store data elsewhere"},
		{matches: isPermanentRefusal, permanent: true, hintOf: adviceOf},
		{matches: isAdmissionRefusal, hintOf: adviceOf},
		{matches: isTerminating, hint: "the namespace is being deleted: wait until it is gone, then create it again"},
		{matches: isMissingNamespace, hint: "create the namespace, declare it among the objects, or set createNamespace"},
		{matches: isPolicyDenial, permanent: true, hintOf: policyHint},
		{matches: isUnauthorizedUser, hint: "grant that user the permission, by a Role or ClusterRole and its binding"},
		{matches: isEscalation, hint: "grant that user these permissions, or the verbs escalate and bind of roles"},
		{matches: apierrors.IsForbidden, hint: "admission in the cluster refuses it, not the permissions of the worker: change what the message names"},
		{matches: containsAny("duplicate entries for key"), permanent: true, hint: "a list has two elements with the same key: keep one of them"},
		{matches: containsAny("failed to create typed patch object"), permanent: true, hint: "a field has another name or type in this version of the kind"},
		{matches: apierrors.IsInvalid, permanent: true},
		{matches: apierrors.IsBadRequest, permanent: true},
		{matches: isConflict, hint: "it was changed at the same time"},
		{matches: apierrors.IsTooManyRequests, hint: tooManyRequests},
		{matches: isPluginFailure, hint: "the kubeconfig names that plugin: it has to work for the user and in the environment of the worker"},
		{matches: isTokenFailure, hint: "the AWS credentials in the environment of the worker have to be valid"},
		{matches: isUnreachable, hint: "the cluster is not reachable"},
	}
}

// containsAny matches an error that contains one of some texts.
func containsAny(texts ...string) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
	}
}

func quoted(err error, pattern string) string {
	if found := regexp.MustCompile(pattern).FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return "asked"
}

// isImmutable reports whether an object would have to be recreated to become as declared.
func isImmutable(err error) bool {
	return apierrors.IsInvalid(err) && containsAny("field is immutable", "is immutable after creation", "may not change once set",
		"cannot change roleRef", "updates to statefulset spec for fields other than")(err)
}

// isDenial reports whether a webhook refused the object. A webhook that reports an internal error may answer otherwise another time.
func isDenial(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !strings.Contains(err.Error(), "admission webhook ") || !strings.Contains(err.Error(), "denied the request") {
		return false
	}
	code := status.Status().Code
	return code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}

var unauthorizedUserRE = regexp.MustCompile(`forbidden: User "[^"]*" cannot `)

// isUnauthorizedUser reports whether the user of the worker lacks a permission. Admission answers with the same code, for other causes.
func isUnauthorizedUser(err error) bool {
	return apierrors.IsForbidden(err) && unauthorizedUserRE.MatchString(err.Error())
}

// isPolicyDenial reports whether a ValidatingAdmissionPolicy refused the object. The policy chooses the code.
func isPolicyDenial(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && policyRE.MatchString(err.Error()) && strings.Contains(err.Error(), "denied request")
}

func policyHint(err error) string {
	found := policyRE.FindStringSubmatch(err.Error())
	return fmt.Sprintf("ValidatingAdmissionPolicy %s, bound by %s, does not allow it: change the object, or that policy", found[1], found[2])
}

func isTooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || containsAny("request is too large", "trying to send message larger than max",
		"metadata.annotations: Too long", "may not be more than 1048576 bytes")(err)
}

func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, "NamespaceTerminating")
}

func isMissingNamespace(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

func isConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// isUnreachable reports whether there was no answer in the form of the server.
func isUnreachable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Reason == metav1.StatusReasonServiceUnavailable
	}
	return true
}

// readingError says why a reading failed, in the words of the server. A classified error keeps its code. A cancellation says nothing
// about the cluster and stays as it is.
func readingError(action string, err error) error {
	if errors.Is(err, context.Canceled) {
		return &interruptedError{action: action, err: err}
	}
	var known *entities.ReadingError
	if errors.As(err, &known) {
		return &entities.ReadingError{Code: known.Code, Message: action + ": " + known.Message, Throttled: known.Throttled, NoAnswer: known.NoAnswer}
	}
	code := readingCode(err)
	reading := &entities.ReadingError{
		Code: code, Message: action + ": " + shortMessage(err), Throttled: code == runtimes.CodeThrottled, NoAnswer: runtimes.IsNoAnswer(code),
	}
	if reading.Throttled {
		reading.Message += " (" + tooManyRequests + ")"
	}
	return reading
}

type interruptedError struct {
	action string
	err    error
}

func (e *interruptedError) Error() string { return e.action + ": " + e.err.Error() }
func (e *interruptedError) Unwrap() error { return e.err }

// readingCode classifies an error of a call to the API server.
func readingCode(err error) string {
	var (
		address *url.Error
		network net.Error
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return runtimes.CodeTimeout
	case apierrors.IsTooManyRequests(err):
		return runtimes.CodeThrottled
	case apierrors.IsUnauthorized(err), isPluginFailure(err), isTokenFailure(err):
		return runtimes.CodeUnauthorized
	case apierrors.IsForbidden(err):
		return runtimes.CodeForbidden
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return runtimes.CodeUnknownKind
	case apierrors.IsServiceUnavailable(err): // it starts or stops, or a proxy in front of it finds no backend
		return runtimes.CodeUnreachable
	case errors.As(err, &network) && network.Timeout():
		return runtimes.CodeTimeout
	case errors.As(err, &address), errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return runtimes.CodeUnreachable // no answer in the form of the server: refused, reset, wrong certificate
	}
	return runtimes.CodeFetchFailed
}

// shortMessage drops what hides the cause: the requested address with its query from a network error, and long values.
func shortMessage(err error) string {
	var at *url.Error
	if errors.As(err, &at) {
		return shortenValues(distinctLines(strings.ReplaceAll(err.Error(), at.Error(), at.Err.Error())))
	}
	return shortenValues(distinctLines(err.Error()))
}

// distinctLines drops the repeated lines of a message: a server lists a fault of a list once for each element.
func distinctLines(message string) string {
	lines := strings.Split(message, "\n")
	seen := map[string]bool{}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		line = strings.TrimSpace(line)
		repeated := seen[line]
		seen[line] = true
		return repeated && line != ""
	}), "\n")
}

// hasCode reports whether a reading failed with a code.
func hasCode(err error, code string) bool {
	var reading *entities.ReadingError
	return errors.As(err, &reading) && reading.Code == code
}
