package ecsfake

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// ids generates ids that look like those of AWS and are the same in each run.
type ids struct{ n int }

func (i *ids) sum(kind string) []byte {
	i.n++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", kind, i.n))
	return sum[:]
}

// hex returns 32 digits, the format of task ids.
func (i *ids) hex(kind string) string { return hex.EncodeToString(i.sum(kind)[:16]) }

// digits returns 19 digits, the format of deployment and revision ids; later ones are larger.
func (i *ids) digits() string {
	i.n++
	return fmt.Sprintf("%019d", 1_000_000_000_000_000_000+i.n*7_919_000_033)
}

// word returns an id in the format of service deployments.
func (i *ids) word() string {
	return strings.Trim(base64.RawURLEncoding.EncodeToString(i.sum("word")[:16]), "-")
}

func (s *Server) arn(resource string) string {
	return fmt.Sprintf("arn:aws:ecs:%s:%s:%s", s.options.Region, s.options.Account, resource)
}

// resource returns the part of an ARN of this account after its kind ("service/shop/web" gives "shop/web"). It returns a text that is
// not an ARN unchanged.
func (s *Server) resource(kind, ref string) (string, bool) {
	if !strings.HasPrefix(ref, "arn:") {
		return ref, true
	}
	return strings.CutPrefix(ref, s.arn(kind+"/"))
}

// nameForm matches valid names of clusters, services and families (API CreateService, RegisterTaskDefinition).
var nameForm = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,255}$`)

func text(p *string) string { return aws.ToString(p) }

func moments(t time.Time) *time.Time { return &t }

// page returns the requested part of a sorted list, and the token for the next part. A part of any list has at most a hundred items,
// and tokens are opaque (API ListServices).
func page(items []string, otherwise int32, size *int32, token *string) ([]string, *string, error) {
	n := otherwise
	if size != nil {
		if n = *size; n < 1 || n > 100 {
			return nil, nil, invalid("maxResults must be between 1 and 100.")
		}
	}
	start := 0
	if token != nil {
		var err error
		if start, err = resume(items, *token); err != nil {
			return nil, nil, err
		}
	}
	end := min(start+int(n), len(items))
	if end == len(items) {
		return items[start:end], nil, nil
	}
	next := fmt.Sprintf("%d %s", end, items[end-1])
	return items[start:end], aws.String(base64.RawURLEncoding.EncodeToString([]byte(next))), nil
}

// resume finds the position of a token: after the item that it names, or where that item was.
func resume(items []string, token string) (int, error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return 0, invalid("Invalid token")
	}
	count, last, _ := strings.Cut(string(raw), " ")
	n, err := strconv.Atoi(count)
	if err != nil {
		return 0, invalid("Invalid token")
	}
	if i := slices.Index(items, last); i >= 0 {
		return i + 1, nil
	}
	return min(n, len(items)), nil
}
