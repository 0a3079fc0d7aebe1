package kubernetes

import (
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// This file explains why a namespace does not admit pods or other objects, from the answer to an apply or from a controller's
// message. A server reports all of that as Forbidden, though permissions are not the cause.

// admissionRefusal is one kind of refusal: the pattern of its message, and advice. Names in the advice are the groups of the pattern.
type admissionRefusal struct {
	pattern   *regexp.Regexp
	advice    string // a format with the groups
	permanent bool   // waiting does not help
}

var refusals = [...]admissionRefusal{
	{
		pattern: regexp.MustCompile(`exceeded quota: ([^,]+), requested: ([^=,]+)`),
		advice:  "ResourceQuota %s: raise its spec.hard[%s], or request fewer resources or replicas",
	},
	{
		pattern: regexp.MustCompile(`failed quota: ([^:]+): must specify (.+)`),
		advice:  "ResourceQuota %s counts it: set resources of the containers that are named (%s), or a default in a LimitRange", permanent: true,
	},
	{
		pattern: regexp.MustCompile(`violates PodSecurity "([^"]+)"`),
		advice:  "Pod Security %s of the namespace: set the named fields in the securityContext of pod and containers, or change the namespace's label pod-security.kubernetes.io/enforce", permanent: true,
	},
	{
		pattern: regexp.MustCompile(`(maximum|minimum) (\S+) usage per (\w+) is`),
		advice:  "LimitRange of the namespace: its %s for %s of a %s; change resources, or spec.limits of the LimitRange", permanent: true,
	},
	{
		pattern: regexp.MustCompile(`(\S+) max limit to request ratio per (\w+) is`),
		advice:  "LimitRange of the namespace: reduce the ratio of resources.limits to resources.requests of %s of a %s, or change its maxLimitRequestRatio", permanent: true,
	},
	{
		pattern: regexp.MustCompile(`no PriorityClass with name (\S+) was found`),
		advice:  "create PriorityClass %s, or change spec.priorityClassName",
	},
	{
		pattern: regexp.MustCompile(`serviceaccount "([^"]+)" not found`),
		advice:  "create ServiceAccount %s, or change spec.serviceAccountName",
	},
	{
		pattern: regexp.MustCompile(`RuntimeClass "([^"]+)" not found`),
		advice:  "create RuntimeClass %s, or change spec.runtimeClassName",
	},
	{
		pattern: regexp.MustCompile(`the storageclass that provisions the pvc must support resize`),
		advice:  "set allowVolumeExpansion: true on the StorageClass of the claim, or keep spec.resources.requests.storage of the claim as it is",
	},
}

// tooManyRequests is the message for a refusal by the server's own fairness.
const tooManyRequests = "API priority and fairness currently rejects requests of this user: they are retried; if that lasts, give the worker a FlowSchema " +
	"with its own PriorityLevelConfiguration (kubectl get --raw /debug/api_priority_and_fairness/dump_priority_levels shows which one is full)"

// adviceFor is the advice for a message of refusal, and whether waiting does not help; "" for other messages.
func adviceFor(message string) (advice string, permanent bool) {
	for _, r := range refusals {
		found := r.pattern.FindStringSubmatch(message)
		if found == nil {
			continue
		}
		groups := make([]any, len(found)-1)
		for n, text := range found[1:] {
			groups[n] = strings.TrimSpace(text)
		}
		return fmt.Sprintf(r.advice, groups...), r.permanent
	}
	return "", false
}

func adviceOf(err error) string {
	advice, _ := adviceFor(err.Error())
	return advice
}

func isAdmissionRefusal(err error) bool { return apierrors.IsForbidden(err) && adviceOf(err) != "" }

func isPermanentRefusal(err error) bool {
	_, permanent := adviceFor(err.Error())
	return apierrors.IsForbidden(err) && permanent
}

// withAdvice adds advice to a controller's message.
func withAdvice(message string) string {
	if advice, _ := adviceFor(message); advice != "" {
		return message + " (" + advice + ")"
	}
	return message
}
