package kubernetes

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfigs of EKS start a program for each token: `aws eks get-token`, or aws-iam-authenticator. Both sign a request to STS and
// send nothing. A worker signs the request itself, so its image needs neither program. The documentation of aws-iam-authenticator
// describes the token (API authorization from outside a cluster).

const (
	eksPrefix           = "k8s-aws-v1."
	eksHeader           = "x-k8s-aws-id"
	eksSignatureSeconds = "60"             // validity of the signed request in seconds; the cluster accepts it for 15 minutes
	eksTokenTTL         = 10 * time.Minute // before the token expires
)

// eks is a cluster of EKS, and the identity that asks for its tokens.
type eks struct {
	cluster, region, role, profile string
}

// eksFlags are the supported flags of the two programs. eksIgnored are those without an effect here.
var eksFlags = map[string]func(*eks) *string{
	"--cluster-name": func(e *eks) *string { return &e.cluster }, "--cluster-id": func(e *eks) *string { return &e.cluster }, "-i": func(e *eks) *string { return &e.cluster },
	"--region": func(e *eks) *string { return &e.region }, "--profile": func(e *eks) *string { return &e.profile },
	"--role-arn": func(e *eks) *string { return &e.role }, "--role": func(e *eks) *string { return &e.role }, "-r": func(e *eks) *string { return &e.role },
	"--output": func(*eks) *string { return new(string) },
}

var eksVariables = map[string]func(*eks) *string{
	"AWS_PROFILE": eksFlags["--profile"], "AWS_REGION": eksFlags["--region"], "AWS_DEFAULT_REGION": eksFlags["--region"],
	"AWS_STS_REGIONAL_ENDPOINTS": eksFlags["--output"], // requests are always regional
}

// eksOf finds the cluster of a credential plugin. It is not ok for a plugin with other arguments, which then runs as usual.
func eksOf(plugin *clientcmdapi.ExecConfig) (e eks, ok bool) {
	if plugin == nil {
		return e, false
	}
	for _, v := range plugin.Env {
		into, known := eksVariables[v.Name]
		if !known {
			return e, false
		}
		*into(&e) = v.Value
	}
	var words []string
	for args := slices.Clone(plugin.Args); len(args) > 0; {
		word := args[0]
		args = args[1:]
		if !strings.HasPrefix(word, "-") {
			words = append(words, word)
			continue
		}
		flag, value, hasValue := strings.Cut(word, "=")
		into, known := eksFlags[flag]
		if !hasValue && len(args) > 0 {
			value, args, hasValue = args[0], args[1:], true
		}
		if !known || !hasValue {
			return e, false
		}
		*into(&e) = value
	}
	program := strings.TrimSuffix(filepath.Base(strings.ReplaceAll(plugin.Command, `\`, "/")), ".exe")
	matches := program == "aws" && slices.Equal(words, []string{"eks", "get-token"}) || program == "aws-iam-authenticator" && slices.Equal(words, []string{"token"})
	return e, matches && e.cluster != ""
}

// signForEKS replaces the program of EKS in a kubeconfig with tokens that this process signs.
func signForEKS(config *rest.Config) {
	e, ok := eksOf(config.ExecProvider)
	if !ok {
		return
	}
	if region := eksHost.FindStringSubmatch(config.Host); e.region == "" && region != nil {
		e.region = region[1]
	}
	config.ExecProvider = nil
	tokens := &eksTokens{target: e}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &eksTransport{tokens: tokens, next: next} })
}

// eksHost is the address of a cluster: https://0123.gr7.eu-west-1.eks.amazonaws.com.
var eksHost = regexp.MustCompile(`\.([a-z0-9-]+)\.eks\.amazonaws\.com`)

// eksTransport adds a token to each request. A rejected token is not used again.
type eksTransport struct {
	tokens *eksTokens
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s *eksTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := s.tokens.get(req.Context())
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := s.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		s.tokens.drop(token)
	}
	return resp, err
}

// eksTokens makes tokens, and caches the last one while it is valid. It finds credentials in the same way as the AWS tools.
type eksTokens struct {
	target eks

	mu      sync.Mutex
	presign *sts.PresignClient
	token   string
	until   time.Time
}

func (t *eksTokens) drop(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == token {
		t.token = ""
	}
}

func (t *eksTokens) get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && time.Now().Before(t.until) {
		return t.token, nil
	}
	token, err := t.sign(ctx)
	if err != nil {
		return "", &eksTokenError{t.target.cluster, err}
	}
	t.token, t.until = token, time.Now().Add(eksTokenTTL)
	return token, nil
}

// eksTokenError is why the worker cannot sign a token with its AWS credentials.
type eksTokenError struct {
	cluster string
	err     error
}

func (e *eksTokenError) Error() string {
	return "token for the EKS cluster " + e.cluster + ": " + e.err.Error()
}
func (e *eksTokenError) Unwrap() error { return e.err }

// sign signs an STS request for the caller's identity. It does not send it: the cluster does.
func (t *eksTokens) sign(ctx context.Context) (string, error) {
	if err := t.connect(ctx); err != nil {
		return "", err
	}
	signed, err := t.presign.PresignGetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", err
	}
	return eksPrefix + base64.RawURLEncoding.EncodeToString([]byte(signed.URL)), nil
}

func (t *eksTokens) connect(ctx context.Context) error {
	if t.presign != nil {
		return nil
	}
	settings, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithLogger(logging.Nop{}), awsconfig.WithSharedConfigProfile(t.target.profile))
	if err != nil {
		return err
	}
	settings.Region = cmp.Or(t.target.region, settings.Region)
	if settings.Region == "" {
		return fmt.Errorf("no region is known; expected --region in the kubeconfig, or AWS_REGION in the worker's environment")
	}
	if t.target.role != "" {
		settings.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(settings), t.target.role))
	}
	t.presign = sts.NewPresignClient(sts.NewFromConfig(settings), sts.WithPresignClientFromClientOptions(sts.WithAPIOptions(
		smithyhttp.SetHeaderValue(eksHeader, t.target.cluster), smithyhttp.SetHeaderValue("X-Amz-Expires", eksSignatureSeconds),
	)))
	return nil
}
