package store

import (
	"context"
	"errors"
	"net"
	"net/http"

	smithy "github.com/aws/smithy-go/transport/http"
)

// IsUnavailable reports that the store cannot be reached, or does not answer at present. The same call may succeed later.
func IsUnavailable(err error) bool {
	var answer *smithy.ResponseError
	if errors.As(err, &answer) {
		code := answer.HTTPStatusCode()
		return code == 0 || code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
	}
	return errors.As(err, new(*smithy.RequestSendError)) || errors.As(err, new(net.Error)) || errors.Is(err, context.DeadlineExceeded)
}
