package job

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/gentype"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/api"
)

// attempt is one call of Run.
type attempt struct {
	client      *api.Client
	request     Request
	name        string
	digest      string
	waiter      string    // identifies this attempt to others that wait for the same Job
	deadline    time.Time // when the wait ends: the timeout, or the caller's deadline if that is earlier
	lastMessage string    // the last output of the command, for an error
	ended       bool      // the container has ended
}

func newAttempt(ctx context.Context, client *api.Client, r Request) *attempt {
	deadline := time.Now().Add(r.Timeout)
	if ctxDeadline, ok := ctx.Deadline(); ok && ctxDeadline.Before(deadline) {
		deadline = ctxDeadline
	}
	return &attempt{client: client, request: r, name: jobName(r.Prefix, r.One), digest: r.digest(), waiter: rand.Text(), deadline: deadline}
}

func (a *attempt) run(ctx context.Context) (res Result, err error) {
	job, attached, err := a.begin(ctx)
	if job != nil {
		defer func() {
			removeErr := a.remove(ctx, job)
			if removeErr != nil && err == nil && a.request.One != "" { // otherwise the next attempt would use this result
				err = fmt.Errorf("the command exited %d, but its Job %s/%s could not be removed: %w", res.ExitCode, job.Namespace, job.Name, removeErr)
			}
		}()
	}
	if err != nil {
		return Result{}, err
	}
	runtimes.ProgressOf(ctx).SetLocation("Job " + job.Namespace + "/" + job.Name)
	res, err = a.await(ctx, job)
	res.Job, res.Attached = job.Namespace+"/"+job.Name, attached
	return res, err
}

// begin creates the Job, or finds the one that an interrupted attempt at the same work left. It returns the Job even with an error,
// if there is one of ours to remove.
func (a *attempt) begin(ctx context.Context) (job *batchv1.Job, attached bool, err error) {
	for {
		job, err = a.jobs().Create(ctx, a.job(), metav1.CreateOptions{})
		switch {
		case err == nil:
			job, err = a.createDependents(ctx, job)
			return job, false, err
		case ctx.Err() != nil:
			return a.findCreated(), false, ctx.Err()
		case !apierrors.IsAlreadyExists(err):
			return nil, false, a.explain(err)
		}
		existing, err := a.jobs().Get(ctx, a.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, false, a.explain(err)
		}
		if existing.Labels[LabelJob] != a.request.Purpose {
			return nil, false, failure(ReasonRefused, "Job %s/%s exists, but is not a Job of Converge: it has no label %s=%s", existing.Namespace, existing.Name, LabelJob, a.request.Purpose)
		}
		if a.matches(existing) {
			claimed, err := a.claim(ctx, existing)
			if err == nil {
				return claimed, true, nil
			}
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return nil, false, a.explain(err)
			}
			continue // it has just changed: read again
		}
		if err := a.removeAndWait(ctx, existing); err != nil && !apierrors.IsConflict(err) {
			return nil, false, err
		}
	}
}

// matches reports whether a found Job is for this same unit of work, so that its result can be used. A Job that is still suspended (the
// worker that created it was lost) is not: objects that it needs may be missing.
func (a *attempt) matches(existing *batchv1.Job) bool {
	return existing.DeletionTimestamp == nil && (existing.Spec.Suspend == nil || !*existing.Spec.Suspend) &&
		existing.Annotations[annotationKey] == a.request.Key && existing.Annotations[annotationDigest] == a.digest
}

// claim makes this attempt the one that removes the Job. An earlier waiter, which may only have lost its connection for a while,
// then leaves the Job alone. A change in between is a conflict.
func (a *attempt) claim(ctx context.Context, existing *batchv1.Job) (*batchv1.Job, error) {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{%q:%q}}}`, existing.UID, existing.ResourceVersion, annotationWaiter, a.waiter)
	return a.jobs().Patch(ctx, existing.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

// createDependents creates the objects that the Job needs, owned by it, and starts it.
func (a *attempt) createDependents(ctx context.Context, job *batchv1.Job) (*batchv1.Job, error) {
	if !a.request.needsObjects() {
		return job, nil
	}
	if len(a.request.Secrets) > 0 {
		if _, err := a.client.Secrets(job.Namespace).Create(ctx, a.secret(job), metav1.CreateOptions{}); err != nil {
			return job, a.explain(err)
		}
	}
	if len(a.request.Files) > 0 {
		if _, err := a.client.ConfigMaps(job.Namespace).Create(ctx, a.files(job), metav1.CreateOptions{}); err != nil {
			return job, a.explain(err)
		}
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"suspend":false}}`, job.UID)
	begun, err := a.jobs().Patch(ctx, job.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return job, a.explain(err)
	}
	return begun, nil
}

// findCreated finds out whether a create request without an answer created a Job.
func (a *attempt) findCreated() *batchv1.Job {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	job, err := a.jobs().Get(ctx, a.name, metav1.GetOptions{})
	if err != nil || job.Annotations[annotationWaiter] != a.waiter {
		return nil
	}
	return job
}

// explain classifies the server's error. An invalid object is permanent.
func (a *attempt) explain(err error) error {
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return runtimes.Permanent(failure(ReasonRefused, "the server refuses the Job: %v", err))
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
		return failure(ReasonRefused, "the server refuses the Job in namespace %s: %v", a.request.Namespace, err)
	}
	return err
}

// await waits for the end of the Job and returns its result.
func (a *attempt) await(ctx context.Context, job *batchv1.Job) (Result, error) {
	f, err := newFollower(ctx, a.client, job)
	if err != nil {
		return Result{}, a.explain(err)
	}
	defer f.end()
	var v verdict
	err = f.waitUntil(ctx, func() (bool, time.Time) {
		v = evaluate(f.observed(job), time.Now())
		return v.ended != nil || v.err != nil, v.recheckAt
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return a.lastOutput(f.observed(job)), err
	case err != nil:
		return Result{}, a.explain(err)
	case v.err != nil:
		return Result{}, v.err
	}
	a.ended = true
	return a.result(ctx, v.ended)
}

// remove removes a Job with all its objects, unless another attempt has claimed it. If its container has ended, the cluster does the
// rest. Otherwise it returns when the pod is gone, so that no process is left.
func (a *attempt) remove(ctx context.Context, job *batchv1.Job) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	for {
		live, err := a.jobs().Get(ctx, job.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (live.UID != job.UID || live.Annotations[annotationWaiter] != a.waiter) {
			return nil // it is gone, or another attempt owns it now
		}
		if err != nil {
			return err
		}
		if a.ended {
			err = a.delete(ctx, live, metav1.DeletePropagationBackground)
		} else {
			err = a.removeAndWait(ctx, live)
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

// removeAndWait removes a Job and waits until the Job and its pod are gone.
func (a *attempt) removeAndWait(ctx context.Context, job *batchv1.Job) error {
	f, err := newFollower(ctx, a.client, job)
	if err != nil {
		return a.explain(err)
	}
	defer f.end()
	if err := a.delete(ctx, job, metav1.DeletePropagationForeground); err != nil {
		return err
	}
	if err := f.waitUntil(ctx, func() (bool, time.Time) {
		s := f.observed(job)
		return s.job == nil && len(s.pods) == 0, time.Time{}
	}); err != nil {
		return fmt.Errorf("wait until Job %s/%s is gone: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// delete deletes a Job as it was read. If there is another Job of its name it deletes nothing; if another attempt has claimed the
// Job since, that is a conflict.
func (a *attempt) delete(ctx context.Context, job *batchv1.Job, policy metav1.DeletionPropagation) error {
	err := a.jobs().Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (a *attempt) jobs() *gentype.ClientWithList[*batchv1.Job, *batchv1.JobList] {
	return a.client.Jobs(a.request.Namespace)
}
