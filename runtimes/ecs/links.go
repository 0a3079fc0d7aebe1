package ecs

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// links point to the service in the console, and to the logs of its containers.
func (ob *observation) links() []entities.Link {
	parts := strings.Split(text(ob.service.ServiceArn), ":")
	const region = 3
	if len(parts) <= region || parts[region] == "" {
		return nil
	}
	console := entities.AWSConsole(parts[region])
	cluster := text(ob.service.ClusterArn)
	links := []entities.Link{{
		Type: "DETAIL", Name: "console",
		URL: fmt.Sprintf("%s/ecs/v2/clusters/%s/services/%s/health?region=%s", console, url.PathEscape(cluster[strings.LastIndex(cluster, "/")+1:]),
			url.PathEscape(text(ob.service.ServiceName)), parts[region]),
	}}
	running := ob.definitions[text(ob.service.TaskDefinition)]
	if running == nil {
		return links
	}
	seen := map[string]bool{}
	for _, l := range running.logs {
		if l.region == "" {
			l.region = parts[region]
		}
		if to := entities.AWSConsole(l.region) + "/cloudwatch/home?region=" + l.region + "#logsV2:log-groups/log-group/" + escapedTwice(l.group); !seen[to] {
			seen[to] = true
			links = append(links, entities.Link{Type: "LOG", Name: l.container, URL: to})
		}
	}
	return links
}

// escapedTwice is the encoding of a log group behind the # in CloudWatch's console, with $ for the second %.
func escapedTwice(group string) string {
	return strings.ReplaceAll(url.QueryEscape(url.QueryEscape(group)), "%", "$")
}
