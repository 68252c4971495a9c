"""Opens the page of a report in Chromium and prints what it shows, as JSON: browser.py PAGE PROFILE"""

import json
import sys

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

READ = """
const texts = (within, what) => [...within.querySelectorAll(what)].map((element) => element.innerText.trim());
const table = (one) => [...one.querySelectorAll("tbody tr")].map((row) => texts(row, "td"));
const read = (within) => ({
  facts: Object.fromEntries([...within.querySelectorAll("dt")].map((dt) => [dt.innerText, dt.nextSibling.innerText])),
  titles: texts(within, "h2, h3"),
  legend: texts(within, ".legend li"),
  failures: texts(within, "article"),
  tables: Object.fromEntries([...within.querySelectorAll(".table")].map((one) =>
    [one.getAttribute("aria-label").split(":")[0], table(one)])),
  lanes: Object.fromEntries([...within.querySelectorAll(".lane")].map((lane) =>
    [lane.querySelector("b").innerText, [...lane.querySelectorAll("i")].map((bar) => bar.title)])),
});
document.querySelectorAll("details").forEach((details) => { details.open = true; });
const sections = [...document.querySelectorAll("section")].map((one) => [one.getAttribute("aria-label"), read(one)]);
return {
  ...read(document), sections: Object.fromEntries(sections), width: [document.documentElement.scrollWidth, innerWidth],
};
"""
ENDS = "return [...document.querySelector('.axis').children].map((end) => end.innerText)"
COVERED = """
return [...document.querySelectorAll(".lane")].filter((lane) => {
  const label = lane.querySelector("b").getBoundingClientRect();
  return [...lane.querySelectorAll("i")].some((bar) => bar.getBoundingClientRect().top < label.bottom - 1);
}).length
"""

page, profile = sys.argv[1:]
options = Options()
for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]:
    options.add_argument(argument)
options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
browser = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
try:

    def size(width):
        settings = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", settings)

    def theme(name):
        features = [{"name": "prefers-color-scheme", "value": name}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    def ends_after(act):
        before = browser.execute_script(ENDS)
        act()
        WebDriverWait(browser, 60).until(lambda _: browser.execute_script(ENDS) != before)
        return browser.execute_script(ENDS)

    def key(text):
        browser.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, "key": text})

    def wheel():
        at = browser.execute_script(
            "const box = document.querySelector('.scroll').getBoundingClientRect();"
            "return {x: box.left + box.width / 4, y: box.top + box.height / 2}"
        )
        turn = {"type": "mouseWheel", "deltaX": 0, "deltaY": -100, "modifiers": 2, **at}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", turn)

    # What the empty page of a new browser requests is not of the report.
    browser.get("about:blank")
    browser.get_log("performance")
    size(1400)
    browser.get(f"file://{page}")
    shown = browser.execute_script(READ)
    shown["themes"] = [theme("light"), theme("dark")]
    shown["covered"] = browser.execute_script(COVERED)
    browser.execute_script("const line = document.querySelector('.scroll'); line.scrollIntoView(); line.focus()")
    shown["ends"] = [browser.execute_script(ENDS)]
    for act in [lambda: key("+"), wheel, lambda: key("0")]:
        shown["ends"].append(ends_after(act))
    button = "document.querySelector('.keys button').click()"
    shown["ends"].append(ends_after(lambda: browser.execute_script(button)))
    size(360)
    shown["narrow"] = browser.execute_script(READ)["width"]
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [message for message in messages if message["method"] == "Network.requestWillBeSent"]
    shown["requests"] = [message["params"]["request"]["url"] for message in requests]
    shown["console"] = browser.get_log("browser")
    # Without scripts, by what a screen reader gets.
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.execute_cdp_cmd("Page.reload", {})
    browser.execute_cdp_cmd("Page.enable", {})

    def read_aloud():
        nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [node["name"]["value"] for node in nodes if node.get("name", {}).get("value") and not node["ignored"]]

    WebDriverWait(browser, 60).until(lambda _: any("prefix directory." in text for text in read_aloud()))
    shown["read_aloud"] = read_aloud()
    print(json.dumps(shown))
finally:
    browser.quit()
