package kubernetes

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// readingError says why something could not be read, in the words of the server. An error that was
// sorted before keeps its code; an interruption from outside says nothing about the cluster and
// stays what it is.
func readingError(doing string, err error) error {
	if errors.Is(err, context.Canceled) {
		return &interrupted{doing: doing, err: err}
	}
	var known *entities.ReadingError
	if errors.As(err, &known) {
		return &entities.ReadingError{Code: known.Code, Message: doing + ": " + known.Message}
	}
	return &entities.ReadingError{Code: readingCode(err), Message: doing + ": " + plainly(err)}
}

type interrupted struct {
	doing string
	err   error
}

func (e *interrupted) Error() string { return e.doing + ": " + e.err.Error() }
func (e *interrupted) Unwrap() error { return e.err }

// readingCode sorts an error of a call to the API server.
func readingCode(err error) string {
	var (
		address *url.Error
		network net.Error
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return runtimes.CodeTimeout
	case apierrors.IsUnauthorized(err):
		return runtimes.CodeUnauthorized
	case apierrors.IsForbidden(err):
		return runtimes.CodeForbidden
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return runtimes.CodeUnknownKind
	case apierrors.IsServiceUnavailable(err): // it starts or stops, or a proxy in front finds nobody
		return runtimes.CodeUnreachable
	case errors.As(err, &network) && network.Timeout():
		return runtimes.CodeTimeout
	case errors.As(err, &address), errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return runtimes.CodeUnreachable // no answer in the server's form: refused, reset, wrong certificate
	}
	return runtimes.CodeFetchFailed
}

// plainly leaves out of a network error the address that was asked for, query and all: what is wrong
// stands behind it.
func plainly(err error) string {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}

// hasCode tells whether a reading failed with a code.
func hasCode(err error, code string) bool {
	var reading *entities.ReadingError
	return errors.As(err, &reading) && reading.Code == code
}
