package ecsfake

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs/schemas"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/aws/smithy-go/transport/http/protocol/awsjson"
)

const (
	target      = "AmazonEC2ContainerServiceV20141113."
	contentType = "application/x-amz-json-1.1"
	// No request of ECS may be much larger than a task definition, 64 KiB (guide service-quotas).
	largest = 1 << 20
)

// handler answers one operation. The caller holds the server's lock.
type handler func(body []byte) (smithy.Serializable, error)

// answer makes a handler of a method that uses the SDK's structs. Names are matched case-insensitively, so that the SDK's inputs can be
// decoded directly.
func answer[In any, Out smithy.Serializable](call func(*In) (Out, error)) handler {
	return func(body []byte) (smithy.Serializable, error) {
		in := new(In)
		if err := json.Unmarshal(body, in); err != nil {
			return nil, &apiError{code: "SerializationException", message: err.Error()}
		}
		out, err := call(in)
		if err != nil {
			return nil, err
		}
		return out, nil
	}
}

// apiError is an error answer of the API.
type apiError struct {
	code, message string
	// status is 400 by default.
	status int
	// resources are the ids in a ConflictException.
	resources []string
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

func refuse(code, format string, args ...any) error {
	return &apiError{code: code, message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return refuse("InvalidParameterException", format, args...)
}

func client(format string, args ...any) error { return refuse("ClientException", format, args...) }

// ServeHTTP answers one request of the API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	operation, known := strings.CutPrefix(strings.Replace(r.Header.Get("X-Amz-Target"), logsTarget, target, 1), target)
	body, err := io.ReadAll(io.LimitReader(r.Body, largest))
	if err != nil {
		return
	}
	handle := s.operations[operation]
	switch {
	case r.Method != http.MethodPost || !known || r.Header.Get("Content-Type") != contentType:
		s.fail(w, refuse("UnknownOperationException", "not a request of the ECS API"))
		return
	case handle == nil:
		s.fail(w, refuse("UnknownOperationException", "%s is not modelled by this fake", operation))
		return
	}
	s.serve(w, r, operation, func() ([]byte, error) { return s.perform(handle, body) })
}

// serve processes a request with the faults that apply to it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, operation string, perform func() ([]byte, error)) {
	if err := s.signed(r); err != nil {
		s.fail(w, err)
		return
	}
	s.levers.called(operation)
	fault := s.levers.activeFault(operation)
	if fault.before(w, r) {
		return
	}
	err := fault.refusal()
	if err == nil {
		err = s.levers.admit(operation, s.Now)
	}
	if err != nil {
		s.levers.refusedBy(operation, err)
		s.fail(w, err)
		return
	}
	out, err := perform()
	if fault.after(w) {
		return
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	s.send(w, http.StatusOK, out)
}

// signed refuses requests that AWS refuses before it parses them: requests without a signature, or signed for another region.
func (s *Server) signed(r *http.Request) error {
	authorization := r.Header.Get("Authorization")
	if authorization == "" {
		return refuse("MissingAuthenticationTokenException", "Missing Authentication Token")
	}
	service := "ecs"
	if strings.HasPrefix(r.Header.Get("X-Amz-Target"), logsTarget) {
		service = "logs"
	}
	if !strings.Contains(authorization, "/"+s.options.Region+"/"+service+"/aws4_request") {
		return refuse("InvalidSignatureException", "Credential should be scoped to a valid region, not %s.", authorization)
	}
	return nil
}

// perform runs an operation and encodes its answer while it holds the lock.
func (s *Server) perform(handle handler, body []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow()
	out, err := handle(body)
	s.settle()
	if err != nil {
		return nil, err
	}
	return encode(out)
}

// encode encodes a result with the SDK's own serializers. They are written for requests, but both directions have the same format.
func encode(out smithy.Serializable) ([]byte, error) {
	request, ok := smithyhttp.NewStackRequest().(*smithyhttp.Request)
	if !ok {
		return nil, fmt.Errorf("smithy-go makes another kind of request")
	}
	// The operation's name is sent in a header that is not read.
	operation := smithy.NewOperationSchema(schemas.DescribeServices, schemas.DescribeServicesRequest, schemas.DescribeServicesResponse)
	protocol := awsjson.New11(schemas.AmazonEC2ContainerServiceV20141113)
	if err := protocol.SerializeRequest(context.Background(), operation, out, request); err != nil {
		return nil, fmt.Errorf("encode %T: %w", out, err)
	}
	return io.ReadAll(request.GetStream())
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	refusal, ok := err.(*apiError) //nolint:errorlint // nothing wraps it
	if !ok {
		refusal = &apiError{code: "ServerException", message: err.Error(), status: http.StatusInternalServerError}
	}
	status := refusal.status
	if status == 0 {
		status = http.StatusBadRequest
	}
	body := map[string]any{"__type": refusal.code, "message": refusal.message}
	if len(refusal.resources) > 0 {
		body["resourceIds"] = refusal.resources
	}
	out, _ := json.Marshal(body)
	s.send(w, status, out)
}

func (s *Server) send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Amzn-Requestid", fmt.Sprintf("%x", time.Now().UnixNano()))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
