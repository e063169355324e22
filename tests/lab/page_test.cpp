// The page as text; page_test.py looks at it in a browser.
#include "lab/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qkv::lab {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Page, HoldsResultsThatCannotEndTheirElement) {
  const std::string html = page(R"({"a": "</script><b>"})");
  EXPECT_THAT(
      html, AllOf(StartsWith("<!doctype html>\n"), EndsWith("</html>\n"),
                  HasSubstr("id=\"results\">\n{\"a\": \"\\u003c/script>\\u003cb>\"}\n</script>")));
}

TEST(Page, HasNoMarkLeft) { EXPECT_THAT(page("{}"), Not(HasSubstr("{{"))); }

TEST(Page, CarriesTheChartLibraryWithItsLicence) {
  EXPECT_THAT(page("{}"),
              AllOf(HasSubstr("Chart.js v"), HasSubstr("Released under the MIT License")));
}

}  // namespace
}  // namespace qkv::lab
